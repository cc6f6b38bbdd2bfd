"""Has a text read aloud with the stock `openai` client.

Usage: pypi_openai_speech.py ADDRESS SCENARIO

The text is that of the scenario's function. Prints {"client", "wav", "pcm", "opus", "events" (sound, base64), "refused" (the error of mp3)}.
"""

import base64
import json
from importlib.metadata import version

from openai import BadRequestError, OpenAI
from scenario import arguments


def main() -> None:
    address, scenario = arguments()
    client = OpenAI(base_url=f"http://{address}/v1", api_key=scenario.key, max_retries=0)
    asked = {"model": "gpt-4o-mini-tts", "voice": "alloy", "input": scenario.function["description"]}
    spoken = {}
    for kind in ["wav", "pcm", "opus"]:
        with client.audio.speech.with_streaming_response.create(**asked, response_format=kind) as response:
            spoken[kind] = base64.b64encode(b"".join(response.iter_bytes())).decode()

    sound = bytearray()
    stream = client.audio.speech.with_streaming_response.create(**asked, response_format="pcm", stream_format="sse")
    with stream as response:
        for line in response.iter_lines():
            if line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                sound += base64.b64decode(event.get("audio", ""))
    spoken["events"] = base64.b64encode(sound).decode()

    refused = ""
    try:
        client.audio.speech.create(**asked)
    except BadRequestError as error:
        refused = f"{error.param}: {error.message}"
    print(json.dumps({"client": f"openai {version('openai')}", "refused": refused, **spoken}))


if __name__ == "__main__":
    main()
