"""Has a sound file written down and translated with the stock `openai` client, in every published format.

Usage: pypi_openai_files.py ADDRESS SCENARIO

The file is the recording of the scenario's first turn. Prints {"client", "texts": the transcript by format, "deltas"
and "done": those of a stream, "words": those of the verbose transcript, "segments", "translated", "refused": the error
of a format that is not served, "complaints": what differs from the published types}.
"""

import io
import json
import pathlib
import wave
from importlib.metadata import version

from openai import BadRequestError, BaseModel, OpenAI
from openai.types.audio import (
    Transcription,
    TranscriptionTextDeltaEvent,
    TranscriptionTextDoneEvent,
    TranscriptionVerbose,
    TranslationVerbose,
)
from pydantic import ValidationError

from scenario import arguments

complaints: list[str] = []


def checked(kind: type[BaseModel], answer: BaseModel) -> dict:
    """The answer's fields, compared with the published type: the client itself takes any."""
    fields = answer.to_dict(mode="json")
    try:
        kind.model_validate(fields)
    except ValidationError as error:
        complaints.append(f"{kind.__name__}: {error}")
    return fields


def main() -> None:
    address, scenario = arguments()
    client = OpenAI(base_url=f"http://{address}/v1", api_key=scenario.key, max_retries=0)
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, scenario.rate, 0, "NONE", ""))
        sound.writeframes(pathlib.Path(scenario.turns[0]["say"]).read_bytes())
    upload = ("question.wav", file.getvalue(), "audio/wav")
    asked = {"file": upload, "model": "whisper-1", "language": "en", "temperature": 0}
    create = client.audio.transcriptions.create
    texts = {"json": checked(Transcription, create(**asked))["text"]}
    for kind in ["text", "srt", "vtt"]:
        answer = create(**asked, response_format=kind)
        assert isinstance(answer, str), f"{kind} is no text but {answer!r}"
        texts[kind] = answer
    granularities = ["word", "segment"]
    verbose = create(**asked, response_format="verbose_json", timestamp_granularities=granularities)
    verbose = checked(TranscriptionVerbose, verbose)
    texts["verbose_json"] = verbose["text"]

    deltas, done = [], None
    for event in create(**asked, stream=True):
        if event.type == "transcript.text.delta":
            deltas.append(checked(TranscriptionTextDeltaEvent, event)["delta"])
        else:
            done = checked(TranscriptionTextDoneEvent, event)["text"]

    translate = client.audio.translations.create
    translated = translate(file=upload, model="whisper-1", response_format="verbose_json")
    translated = checked(TranslationVerbose, translated)["text"]
    refused = ""
    try:
        create(**asked, response_format="diarized_json")
    except BadRequestError as error:
        refused = f"{error.param}: {error.message}"
    report = {
        "client": f"openai {version('openai')}",
        "texts": texts,
        "deltas": deltas,
        "done": done,
        "words": [word["word"] for word in verbose["words"]],
        "segments": [segment["text"] for segment in verbose["segments"]],
        "translated": translated,
        "refused": refused,
        "complaints": complaints,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
