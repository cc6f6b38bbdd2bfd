"""Asks one spoken question with the stock `openai` client, prints the transcript of the answer and writes its sound.

    pip install "openai[realtime]"
    python client.py question.wav answer.wav [http://127.0.0.1:8080/v1]

The question is a wav file of 16 bit, of any rate from 8 to 48 kHz and any number of channels. A server with keys takes
the one in OPENAI_API_KEY.
"""

import array
import base64
import json
import os
import sys
import wave

from openai import OpenAI
from websockets.exceptions import InvalidStatus

ANSWER_RATE = 24_000


def read(path: str) -> tuple[bytes, int]:
    """Returns the first channel of a wav file as 16 bit, and its rate."""
    with wave.open(path) as file:
        if file.getsampwidth() != 2:
            sys.exit(f"{path} is not of 16 bit: ffmpeg -i {path} -c:a pcm_s16le OTHER.wav")
        samples = array.array("h", file.readframes(file.getnframes()))
        return samples[:: file.getnchannels()].tobytes(), file.getframerate()


def ask(base_url: str, question: str, answer: str) -> str:
    """One spoken turn; returns the transcript of the answer."""
    frames, rate = read(question)
    # The client insists on a key; a server without keys takes any.
    client = OpenAI(base_url=base_url, api_key=os.environ.get("OPENAI_API_KEY", "none"))
    transcript, sound = "", b""
    with client.realtime.connect(model="repartee") as connection:
        # The file is one turn: no turn detection, we commit.
        audio = {"input": {"turn_detection": None, "format": {"type": "audio/pcm", "rate": rate}}}
        connection.session.update(session={"type": "realtime", "audio": audio})
        for start in range(0, len(frames), rate // 5):
            piece = frames[start : start + rate // 5]
            connection.input_audio_buffer.append(audio=base64.b64encode(piece).decode())
        connection.input_audio_buffer.commit()
        connection.response.create()
        for event in connection:
            match event.type:
                case "response.output_audio_transcript.delta":
                    transcript += event.delta
                case "response.output_audio.delta":
                    sound += base64.b64decode(event.delta)
                case "response.done" if event.response.status == "completed":
                    break
                case "response.done":
                    sys.exit(f"no answer: {event.response.status_details}")
                case "error":
                    sys.exit(f"refused: {event.error.message}")
    with wave.open(answer, "wb") as file:
        file.setparams((1, 2, ANSWER_RATE, 0, "NONE", ""))
        file.writeframes(sound)
    return transcript


def reason(refused: InvalidStatus) -> str:
    """The server's words for a refused connection."""
    try:
        return json.loads(refused.response.body)["error"]["message"]
    except (TypeError, ValueError, KeyError):
        return refused.response.reason_phrase


if __name__ == "__main__":
    question, answer, *rest = sys.argv[1:]
    url = rest[0] if rest else "http://127.0.0.1:8080/v1"
    try:
        print(ask(url, question, answer))
    except InvalidStatus as refused:
        sys.exit(f"{url} refused the call ({refused.response.status_code}): {reason(refused)}")
    except (OSError, EOFError, wave.Error) as error:
        sys.exit(f"cannot ask {url} about {question}: {error}")
