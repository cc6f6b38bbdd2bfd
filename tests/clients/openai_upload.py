"""One spoken question in one upload, with the stock client: whole and streamed, and what surrounds it.

Usage: openai_upload.py BASE_URL QUESTION.wav RECORDINGS
Prints one JSON object.
"""

import base64
import json
import pathlib
import sys
import wave

from openai import NotFoundError, OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.realtime import ClientSecretCreateResponse
from pydantic import TypeAdapter


def checked(kind, answer):
    """The answer, if it has every field that the client's own types want: the client itself does not look."""
    TypeAdapter(kind).validate_python(answer.model_dump(), strict=kind is not ClientSecretCreateResponse)
    return answer


def main():
    base_url, question, recordings = sys.argv[1:]
    client = OpenAI(base_url=base_url, api_key="none")
    data = base64.b64encode(pathlib.Path(question).read_bytes()).decode()
    asked = {
        "model": "gpt-audio",
        "modalities": ["text", "audio"],
        "messages": [
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}]}
        ],
    }

    whole = checked(
        ChatCompletion, client.chat.completions.create(**asked, audio={"voice": "alloy", "format": "wav"})
    )
    audio = whole.choices[0].message.audio
    whole_path = pathlib.Path(recordings, "whole.wav")
    whole_path.write_bytes(base64.b64decode(audio.data))

    transcript, sound, finish_reason = "", b"", None
    stream = client.chat.completions.create(**asked, audio={"voice": "alloy", "format": "pcm16"}, stream=True)
    for chunk in stream:
        choice = checked(ChatCompletionChunk, chunk).choices[0]
        finish_reason = choice.finish_reason or finish_reason
        if part := choice.delta.audio:
            transcript += part.transcript or ""
            sound += base64.b64decode(part.data or "")
    streamed_path = pathlib.Path(recordings, "streamed.wav")
    with wave.open(str(streamed_path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(24000)
        file.writeframes(sound)

    secret = checked(
        ClientSecretCreateResponse,
        client.realtime.client_secrets.create(session={"type": "realtime", "model": "gpt-realtime"}),
    )
    try:
        client.models.retrieve("gpt-realtime")
        missing = None
    except NotFoundError as error:
        missing = error.code
    report = {
        "whole": {"transcript": audio.transcript, "recording": str(whole_path)},
        "streamed": {"transcript": transcript, "recording": str(streamed_path)},
        "finish_reasons": [whole.choices[0].finish_reason, finish_reason],
        "models": [model.id for model in client.models.list()],
        "missing_model": missing,
        "ephemeral_key": secret.value[:3],
    }
    print(json.dumps(report))


main()
