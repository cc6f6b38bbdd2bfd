"""The schema of the Realtime server events, made from the types of the installed `openai` package.

Usage: event_schema.py            prints it as JSON: {event type: JSON schema}

The package's own types are open: they let unknown fields pass. Here every object is closed but for `repartee`, the
place of our extensions, and each event is judged by the schema of its `type` alone, so that a complaint names what is
wrong with it.
"""

import json

from openai.types.realtime import RealtimeServerEvent
from openai.types.realtime.realtime_session_create_response import RealtimeSessionCreateResponse
from openai.types.realtime.realtime_transcription_session_create_response import (
    RealtimeTranscriptionSessionCreateResponse,
)
from pydantic import TypeAdapter

# Fields that a server adds to a session. The package describes them only for ephemeral keys.
SERVED_SESSION = ("id", "object", "expires_at")
REFERENCE = "#/$defs/"


def event_schemas() -> dict[str, dict]:
    """The closed schema of each event by its `type`."""
    whole = TypeAdapter(RealtimeServerEvent).json_schema()
    definitions = whole["$defs"]
    for asked, answered in (
        ("RealtimeSessionCreateRequest", RealtimeSessionCreateResponse),
        ("RealtimeTranscriptionSessionCreateRequest", RealtimeTranscriptionSessionCreateResponse),
    ):
        served = TypeAdapter(answered).json_schema()
        for field in SERVED_SESSION:
            definitions[asked]["properties"][field] = served["properties"][field]
    close(definitions)
    schemas = {}
    for event in whole["anyOf"]:
        definition = definitions[event["$ref"].removeprefix(REFERENCE)]
        schemas[definition["properties"]["type"]["const"]] = {**definition, "$defs": definitions}
    return schemas


def close(schema: object) -> None:
    """Lets no object hold a field that it does not name, in place. Objects that name none are maps."""
    if isinstance(schema, list):
        for part in schema:
            close(part)
    elif isinstance(schema, dict):
        for part in schema.values():
            close(part)
        if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
            schema["additionalProperties"] = False
            schema["properties"]["repartee"] = True


if __name__ == "__main__":
    print(json.dumps(event_schemas(), indent=1))
