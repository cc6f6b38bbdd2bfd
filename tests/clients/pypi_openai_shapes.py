"""Sends every field of the published client events in the forms that clients write, by the types of the installed
`openai` package.

Usage: pypi_openai_shapes.py ADDRESS SCENARIO      the scenario is not read

Each field comes once with a value of a wrong type; if it is refused, the error has to name its whole path, and no type
of the server's. Each optional field comes once as `null` and each integer once with a zero fraction; neither may be
refused for its form. Prints {"client", "fields": number of fields, "refused": number of refusals, "complaints"}.
"""

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import websockets
from openai.types.realtime import RealtimeClientEvent
from pydantic import TypeAdapter

REFERENCE = "#/$defs/"
# Samples of each JSON type, in the order in which a wrong one is chosen.
SAMPLES = {"boolean": True, "array": [[]], "object": {"x": 1}, "string": "wrong", "integer": 7, "number": 7.5}
# Names of types that belong to the server's language.
FOREIGN = re.compile(r"\b(struct|enum|variant|[iu](8|16|32|64|128)|f(32|64)|usize|Vec|Option)\b|[a-z][A-Z]")
# Integers within the bounds of every field but a rate.
WHOLE, RATE = 500.0, 24000.0
# The types leave it out, and no function can be called without it.
NEEDED = re.compile(r"tools\[0\]\.name$")
WITHIN_S = 30

SCHEMA = TypeAdapter(RealtimeClientEvent).json_schema()
Path = tuple[str | int, ...]


def resolved(schema: dict) -> dict:
    while "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].removeprefix(REFERENCE)]
    return schema


def branches(schema: dict) -> list[dict]:
    """The forms of a value, `null` left out."""
    schema = resolved(schema)
    if "anyOf" in schema or "oneOf" in schema:
        parts = schema.get("anyOf", []) + schema.get("oneOf", [])
        return [branch for part in parts for branch in branches(part)]
    return [] if schema.get("type") == "null" else [schema]


def kind(schema: dict) -> str | None:
    """The JSON type of a form; `None` for any."""
    if "type" in schema:
        return schema["type"]
    value = schema.get("const", next(iter(schema.get("enum", [])), None))
    return "string" if isinstance(value, str) else None


def minimal(schema: dict, depth: int = 0) -> Any:
    """A value of a form with its required fields alone."""
    schema = branches(schema)[0]
    if "const" in schema or "enum" in schema:
        return schema.get("const", next(iter(schema.get("enum", [])), None))
    match kind(schema):
        case "object":
            fields = schema.get("properties", {})
            return {name: minimal(fields[name], depth + 1) for name in schema.get("required", [])}
        case "array":
            return []
        case "integer" | "number":
            return 0
        case "boolean":
            return False
        case _:
            return "x"


def fields(schema: dict, value: dict, path: Path = ()) -> Iterator[tuple[Path, dict, bool, dict]]:
    """Every field of an object: its path, its schema, true if it is required, and a whole value around it."""
    for name, field in schema.get("properties", {}).items():
        if name in ("type", "event_id"):
            continue
        here = (*path, name)
        yield here, field, name in schema.get("required", []), value
        for branch in branches(field):
            listed = kind(branch) == "array"
            inner = branches(branch["items"]) if listed and "items" in branch else [branch]
            for form in inner:
                if kind(form) == "object" and form.get("properties"):
                    at = (*here, 0) if listed else here
                    yield from fields(form, placed(value, at, minimal(form)), at)


def placed(value: object, path: Path, leaf: object) -> Any:
    """A copy of `value` with `leaf` at `path`."""
    if not path:
        return leaf
    first, *rest = path
    if isinstance(first, int):
        inner = value[first] if isinstance(value, list) and len(value) > first else None
        return [placed(inner, tuple(rest), leaf)]
    fields = value if isinstance(value, dict) else {}
    return {**fields, first: placed(fields.get(first), tuple(rest), leaf)}


def written(path: Path) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


def cases() -> Iterator[tuple[str, dict, bool]]:
    """Path, event, and true if the value has a wrong type."""
    for event in branches(SCHEMA):
        for path, field, required, around in fields(event, minimal(event)):
            whole = {"type": event["properties"]["type"]["const"], **around}
            forms = branches(field)
            kinds = {kind(form) for form in forms}
            accepted = kinds | ({"integer"} if "number" in kinds else set())
            if None not in kinds:
                wrong = next(sample for name, sample in SAMPLES.items() if name not in accepted)
                yield written(path), placed(whole, path, wrong), True
            if not required and not NEEDED.search(written(path)):
                yield written(path), placed(whole, path, None), False
            if "integer" in kinds:
                yield written(path), placed(whole, path, RATE if path[-1] == "rate" else WHOLE), False


async def main(address: str) -> dict:
    complaints, refused, sent = [], 0, {}
    async with websockets.connect(f"ws://{address}/v1/realtime?model=x", max_size=None) as socket:
        for number, (path, event, wrong) in enumerate(cases()):
            sent[str(number)] = (path, event, wrong)
            await socket.send(json.dumps({**event, "event_id": str(number)}))
        await socket.send(json.dumps({"type": "conversation.item.retrieve", "item_id": "none", "event_id": "last"}))
        async for message in socket:
            event = json.loads(message)
            if event["type"] != "error":
                continue
            error = event["error"]
            if error.get("event_id") == "last":
                break
            path, cause, wrong = sent.get(error.get("event_id"), ("", {}, False))
            refused += 1
            param = error["param"] or ""
            about = f"{cause.get('type')}: {path}: {param}: {error['message']}"
            if not wrong and param == path and error["code"] in ("missing_required_parameter", "invalid_value"):
                complaints.append(f"refused for its form: {about}")
            # A form that is not served is refused by its type, and a choice of tools as a whole.
            elsewhere = param.endswith("type") or "tool_choice" in path
            named = elsewhere or param == path or param.startswith((f"{path}.", f"{path}["))
            if wrong and not named and error["code"] in ("missing_required_parameter", "invalid_value", "invalid_json"):
                complaints.append(f"another path: {about}")
            if FOREIGN.search(error["message"].split("`")[0]):
                complaints.append(f"a foreign type: {about}")
    paths = {path for path, _, _ in sent.values()}
    return {"client": f"openai {version('openai')}", "fields": len(paths), "refused": refused, "complaints": complaints}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(asyncio.wait_for(main(sys.argv[1]), WITHIN_S))))
