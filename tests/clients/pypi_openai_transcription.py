"""Has two turns written down with the stock `openai` client: a transcription session, opened with an ephemeral key.

Usage: pypi_openai_transcription.py ADDRESS SCENARIO

The first turn of the scenario is cut out by the server's voice activity detection, the second is committed by the
client. In between it asks for a response, which such a session does not make. Prints {"client", "session" and
"created": the types of the key's session and of the call's, "transcripts", "deltas": what came of each transcript,
"refusals": codes of errors}.
"""

import asyncio
import base64
import json
from importlib.metadata import version
from typing import Any

from openai import AsyncOpenAI
from openai.resources.realtime.realtime import AsyncRealtimeConnection

from scenario import Scenario, arguments

SESSION = {
    "type": "transcription",
    "audio": {
        "input": {
            "transcription": {"model": "gpt-4o-transcribe", "language": "en"},
            "turn_detection": {"type": "server_vad", "silence_duration_ms": 400},
        }
    },
}
WITHIN_S = 60


async def say(connection: AsyncRealtimeConnection, scenario: Scenario, index: int) -> None:
    async for piece in scenario.pieces(scenario.turns[index]):
        await connection.input_audio_buffer.append(audio=base64.b64encode(piece).decode())


async def until(connection: AsyncRealtimeConnection, kind: str) -> Any:
    """The next event of this type."""
    async for event in connection:
        if event.type == "conversation.item.input_audio_transcription.delta":
            deltas[event.item_id] = deltas.get(event.item_id, "") + event.delta
        if event.type == kind:
            return event
    raise SystemExit(f"the connection ended before a {kind}")


async def transcript(connection: AsyncRealtimeConnection) -> str:
    return (await until(connection, "conversation.item.input_audio_transcription.completed")).transcript


deltas: dict[str, str] = {}


async def talk(address: str, scenario: Scenario) -> dict:
    base = f"http://{address}/v1"
    owner = AsyncOpenAI(base_url=base, api_key=scenario.key, max_retries=0)
    secret = await owner.realtime.client_secrets.create(session=SESSION)
    client = AsyncOpenAI(base_url=base, api_key=secret.value, max_retries=0)
    transcripts = []
    async with client.realtime.connect(
        model="gpt-4o-transcribe", extra_query={"intent": "transcription"}
    ) as connection:
        created = await until(connection, "session.created")
        await say(connection, scenario, 0)
        transcripts.append(await transcript(connection))
        await connection.response.create()
        refused = (await until(connection, "error")).error.code
        await connection.session.update(session={"type": "transcription", "audio": {"input": {"turn_detection": None}}})
        await until(connection, "session.updated")
        # Audio after the first turn belongs to no turn.
        await connection.input_audio_buffer.clear()
        await say(connection, scenario, 1)
        await connection.input_audio_buffer.commit()
        transcripts.append(await transcript(connection))
    return {
        "client": f"openai {version('openai')}",
        "session": secret.session.type,
        "created": created.session.type,
        "transcripts": transcripts,
        "deltas": list(deltas.values()),
        "refusals": [refused],
    }


if __name__ == "__main__":
    address, scenario = arguments()
    print(json.dumps(asyncio.run(asyncio.wait_for(talk(address, scenario), WITHIN_S))))
