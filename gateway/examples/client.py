"""Asks one spoken question with the stock `openai` client, prints the transcript of the answer and writes its sound.

    pip install "openai[realtime]"
    python client.py question.wav answer.wav [http://127.0.0.1:8080/v1]

The question is a wav file as the wire takes it: 24 kHz, mono, 16 bit. A server with keys takes the one in
OPENAI_API_KEY.
"""

import base64
import os
import sys
import wave

from openai import OpenAI

RATE = 24_000
SLICE_FRAMES = RATE // 10


def ask(base_url: str, question: str, answer: str) -> str:
    """One spoken turn; returns the transcript of the answer."""
    # The client insists on a key; a server without keys takes any.
    client = OpenAI(base_url=base_url, api_key=os.environ.get("OPENAI_API_KEY", "none"))
    transcript, sound = "", b""
    with client.realtime.connect(model="repartee") as connection:
        # The file is one turn: no turn detection, we commit.
        connection.session.update(session={"type": "realtime", "audio": {"input": {"turn_detection": None}}})
        with wave.open(question) as file:
            if (file.getframerate(), file.getnchannels(), file.getsampwidth()) != (RATE, 1, 2):
                sys.exit(f"{question} is not 24 kHz, mono, 16 bit: ffmpeg -i {question} -ar 24000 -ac 1 OTHER.wav")
            while frames := file.readframes(SLICE_FRAMES):
                connection.input_audio_buffer.append(audio=base64.b64encode(frames).decode())
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
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes(sound)
    return transcript


if __name__ == "__main__":
    question, answer, *rest = sys.argv[1:]
    print(ask(rest[0] if rest else "http://127.0.0.1:8080/v1", question, answer))
