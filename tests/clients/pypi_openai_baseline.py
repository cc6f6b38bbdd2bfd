"""Asks in one upload with the stock `openai` client: models, then a completion, whole and streamed.

Usage: pypi_openai_baseline.py ADDRESS SCENARIO

Says the first turn of the scenario. What comes back is also checked against the package's own types, closed as in
event_schema.py. Then it reads the usage of its key, and asks for interfaces that the server does not have. Prints
{"client", "models", "whole", "streamed", "usage", "refused", "complaints"}; an answer is {"transcript", "sound" (raw
samples, base64), "finish"}, "usage" are the results of all days, "refused" the messages of errors.
"""

import base64
import io
import json
import pathlib
import wave
from importlib.metadata import version

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from openai import NotFoundError, OpenAI
from openai.types import Model
from openai.types.admin.organization import UsageCompletionsResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import TypeAdapter

from event_schema import close
from scenario import Scenario, arguments

complaints: list[str] = []


def check(kind: type, given: object) -> None:
    """Reports fields that the package's type does not know, or lacks."""
    schema = TypeAdapter(kind).json_schema()
    close(schema)
    error = best_match(Draft202012Validator(schema).iter_errors(given))
    if error:
        complaints.append(f"{kind.__name__}: {error.json_path}: {error.message}")


def question(scenario: Scenario) -> str:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(scenario.rate)
        out.writeframes(pathlib.Path(scenario.turns[0]["say"]).read_bytes())
    return base64.b64encode(file.getvalue()).decode()


def main() -> None:
    address, scenario = arguments()
    client = OpenAI(base_url=f"http://{address}/v1", api_key=scenario.key, max_retries=0)
    listed = client.models.list()
    for model in listed.data:
        check(Model, client.models.with_raw_response.retrieve(model.id).http_response.json())

    sound = {"type": "input_audio", "input_audio": {"data": question(scenario), "format": "wav"}}
    asked = {
        "model": "gpt-audio",
        "modalities": ["text", "audio"],
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [sound]}],
    }
    raw = client.chat.completions.with_raw_response.create(**asked, audio={"voice": "alloy", "format": "wav"})
    check(ChatCompletion, raw.http_response.json())
    choice = raw.parse().choices[0]
    with wave.open(io.BytesIO(base64.b64decode(choice.message.audio.data))) as file:
        samples = file.readframes(-1)
        complaints.extend([] if file.getframerate() == scenario.rate else [f"a rate of {file.getframerate()}"])
    whole = {"transcript": choice.message.audio.transcript, "finish": choice.finish_reason}
    whole["sound"] = base64.b64encode(samples).decode()

    streamed = {"transcript": "", "finish": None}
    pieces = bytearray()
    chunks = client.chat.completions.create(**asked, audio={"voice": "alloy", "format": "pcm16"}, stream=True)
    for chunk in chunks:
        seen = chunk.model_dump(exclude_unset=True)
        for choice in seen["choices"]:
            # The package's type of a piece does not know sound, which the API sends all the same.
            audio = choice["delta"].pop("audio", None) or {}
            streamed["transcript"] += audio.get("transcript", "")
            pieces += base64.b64decode(audio.get("data", ""))
            streamed["finish"] = choice.get("finish_reason") or streamed["finish"]
        check(ChatCompletionChunk, seen)
    streamed["sound"] = base64.b64encode(pieces).decode()

    owner = OpenAI(base_url=f"http://{address}/v1", admin_api_key=scenario.key, max_retries=0)
    page = owner.admin.organization.usage.completions(start_time=0)
    UsageCompletionsResponse.model_validate(page.to_dict(mode="json"))
    usage = [result.to_dict() for bucket in page.data for result in bucket.results]

    refused = []
    translations = client.realtime.translations.client_secrets
    for unserved in [
        lambda: client.responses.create(model="any", input="hello"),
        lambda: client.embeddings.create(model="any", input="hello"),
        lambda: translations.create(session={"model": "any"}),
    ]:
        try:
            unserved()
        except NotFoundError as error:
            refused.append(error.message)

    models = [model.id for model in listed.data]
    print(
        json.dumps(
            {
                "client": f"openai {version('openai')}",
                "models": models,
                "whole": whole,
                "streamed": streamed,
                "usage": usage,
                "refused": refused,
                "complaints": complaints,
            }
        )
    )


if __name__ == "__main__":
    main()
