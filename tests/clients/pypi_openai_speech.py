"""Has a text read aloud with the stock `openai` client.

Usage: pypi_openai_speech.py ADDRESS SCENARIO

The text is that of the scenario's function. A voice is made of the scenario's first recording, speaks, and is deleted.
Prints {"client", "wav", "pcm", "opus", "mp3", "flac" (decoded by FFmpeg), "fast" (at twice the speed), "events",
"voice" (sound, base64), "refused" (the error of aac), "made" (the voice's id), "gone" (whether both deletions were
confirmed)}.
"""

import base64
import io
import json
import pathlib
import wave
from importlib.metadata import version

import av
from openai import BadRequestError, OpenAI

from scenario import arguments


def recording(path: str, rate: int) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, rate, 0, "NONE", ""))
        sound.writeframes(pathlib.Path(path).read_bytes())
    return file.getvalue()


def main() -> None:
    address, scenario = arguments()
    assert scenario.function is not None, "the text to speak is the function's description"
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

    # Another decoder than the server's own.
    flac = client.audio.speech.create(**asked, response_format="flac").content
    with av.open(io.BytesIO(flac)) as file:
        frames = [frame.to_ndarray().astype("<i2").tobytes() for frame in file.decode(audio=0)]
    spoken["flac"] = base64.b64encode(b"".join(frames)).decode()
    fast = client.audio.speech.create(**asked, response_format="pcm", speed=2.0).content
    spoken["fast"] = base64.b64encode(fast).decode()

    # The published default.
    spoken["mp3"] = base64.b64encode(client.audio.speech.create(**asked).content).decode()
    refused = ""
    try:
        client.audio.speech.create(**asked, response_format="aac")
    except BadRequestError as error:
        refused = f"{error.param}: {error.message}"
    said = recording(scenario.turns[0]["say"], scenario.rate)
    consent = client.audio.voice_consents.create(
        name="mine", language="en-US", recording=("consent.wav", said, "audio/wav")
    )
    voice = client.audio.voices.create(name="Ada", consent=consent.id, audio_sample=("ada.wav", said, "audio/wav"))
    asked["voice"] = {"id": voice.id}
    with client.audio.speech.with_streaming_response.create(**asked, response_format="pcm") as response:
        spoken["voice"] = base64.b64encode(b"".join(response.iter_bytes())).decode()
    [listed] = client.audio.voice_consents.list()
    gone = (
        listed == consent
        and client.audio.voices.delete(voice.id).deleted
        and client.audio.voice_consents.delete(consent.id).deleted
    )
    facts = {"refused": refused, "made": voice.id, "gone": gone}
    print(json.dumps({"client": f"openai {version('openai')}", **facts, **spoken}))


if __name__ == "__main__":
    main()
