"""Goes through a scenario with the stock `openai` client over the websocket. Usage: pypi_openai.py ADDRESS SCENARIO

The client plays nothing itself, so this does what its documentation asks of a caller: when the server hears speech,
stop playing and truncate the item at what was heard.
"""

import asyncio
import base64

from openai import AsyncOpenAI
from openai.resources.realtime.realtime import AsyncRealtimeConnection

from scenario import Scenario, arguments


async def listen(connection: AsyncRealtimeConnection, scenario: Scenario) -> None:
    # Items of answers that may be only partly heard, by answer.
    unheard: dict[str, str] = {}
    async for event in connection:
        match event.type:
            case "error":
                scenario.errors.append(event.error.message)
            case "response.output_item.added":
                unheard[event.response_id] = event.item.id
            case "response.output_audio_transcript.delta":
                scenario.answer(event.response_id).transcript += event.delta
            case "response.output_audio.delta":
                scenario.sounded(scenario.answer(event.response_id), base64.b64decode(event.delta))
            case "response.done":
                scenario.answer(event.response.id).made = True
            case "input_audio_buffer.speech_started":
                for name, item in unheard.items():
                    answer = scenario.answer(name)
                    heard_ms = int(answer.played_ms(scenario.rate))
                    scenario.stopped(answer)
                    if answer.interrupted:
                        await connection.conversation.item.truncate(
                            item_id=item, content_index=0, audio_end_ms=heard_ms
                        )
                unheard.clear()


async def talk(address: str, scenario: Scenario) -> None:
    client = AsyncOpenAI(base_url=f"http://{address}/v1", api_key=scenario.key, max_retries=0)
    async with client.realtime.connect(model="gpt-realtime") as connection:
        listening = asyncio.create_task(listen(connection, scenario))
        await connection.session.update(
            session={
                "type": "realtime",
                "instructions": "Be brief.",
                "audio": {"input": {"turn_detection": {"type": "server_vad"}}, "output": {"voice": "marin"}},
            }
        )
        for index, turn in enumerate(scenario.turns):
            async for piece in scenario.pieces(turn):
                await connection.input_audio_buffer.append(audio=base64.b64encode(piece).decode())
            await scenario.answered(index)
        listening.cancel()


if __name__ == "__main__":
    address, scenario = arguments()
    asyncio.run(talk(address, scenario))
    scenario.report("openai")
