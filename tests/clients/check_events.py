"""Checks server events against the schema of the `openai` package's types (event_schema.py) and with pipecat's own
parser.

Usage: check_events.py FILE       one event as JSON a line

Prints each complaint, and fails if there is one. Every check is itself checked with what was recorded: of each type of
event one copy for every field that must be there loses it, one gets a field of no meaning, and the schema must refuse
them all.
"""

import json
import pathlib
import sys

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from loguru import logger

from event_schema import event_schemas

logger.remove()
from pipecat.services.openai.realtime.events import parse_server_event  # noqa: E402  (it greets through the logger)


def main(path: str) -> int:
    with pathlib.Path(path).open(encoding="utf-8") as file:
        events = [json.loads(line) for line in file]
    validators = {kind: Draft202012Validator(schema) for kind, schema in event_schemas().items()}

    def refusal(event: dict) -> str | None:
        validator = validators.get(event.get("type", ""))
        if validator is None:
            return "there is no such event"
        error = best_match(validator.iter_errors(event))
        return error and f"{error.json_path}: {error.message}"

    complaints = [f"schema: {why}: {json.dumps(event)[:2000]}" for event in events if (why := refusal(event))]
    complaints += [f"pipecat: {why}" for event in events if (why := pipecat_refusal(event))]
    one_of_each = {event["type"]: event for event in events}
    for kind, event in one_of_each.items():
        if kind not in validators:
            continue
        for field in validators[kind].schema["required"]:
            if not refusal({name: value for name, value in event.items() if name != field}):
                complaints.append(f"the schema does not miss `{field}` in {kind}")
        if not refusal({**event, "no_such_field": 1}):
            complaints.append(f"the schema does not mind an unknown field in {kind}")
        if pipecat_knows(event) and not pipecat_refusal({name: event[name] for name in event if name != "event_id"}):
            complaints.append(f"pipecat does not miss `event_id` in {kind}")
    print(*complaints, sep="\n")
    print(f"{len(events)} events of {len(one_of_each)} types")
    return 1 if complaints or not events else 0


def pipecat_knows(event: dict) -> bool:
    is_conversation = event.get("session", {}).get("type") != "transcription"
    return is_conversation and pipecat_refusal(event) is None and parse_server_event(json.dumps(event)) is not None


def pipecat_refusal(event: dict) -> str | None:
    if event.get("session", {}).get("type") == "transcription":
        # It has no such sessions.
        return None
    try:
        parse_server_event(json.dumps(event))
    except Exception as error:  # noqa: BLE001  (it raises nothing more precise)
        return str(error)[:2000]
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
