"""Writes parity.json: the reference's outputs for recordings, for `smart_turn.rs`.

    target/tools/clients/bin/python engine/tests/families/smart_turn/parity.py

The recordings are questions of tests/questions, whole and cut short, each with 200 ms of silence behind it. The model
is the published file smart-turn-v3.2-cpu.onnx and the features are those of its driver, both in PyPI's `pipecat-ai`,
which tests/requirements-clients.txt installs for the conformance tests; onnxruntime runs it twice:

- `probability`: without the quantisation of activations, whose nodes are by-passed. This is what Repartee computes.
- `quantised`: the file as it is, for comparison.

`features` holds a few numbers of the spectrogram, as [frame, bin, value].
"""

import json
import wave
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnxruntime
from pipecat.audio.turn import smart_turn
from pipecat.audio.turn.smart_turn._whisper_features import compute_whisper_log_mel_features

ROOT = Path(__file__).resolve().parents[4]
MODEL = Path(smart_turn.__file__).parent / "data/smart-turn-v3.2-cpu.onnx"
QUESTIONS = ["how-deep-ocean", "count-three-to-six", "name-anna", "six-times-seven", "tell-a-joke", "who-are-you"]
SHARES = [1.0, 0.7, 0.4]
RATE, SECONDS = 16_000, 8
Field = tuple[int, int, bytes]


# The protocol buffers wire format, as far as this file uses it.
def number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at


def encoded(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def fields(data: bytes) -> Iterator[Field]:
    """(field, wire type, value) of each field; a value of type 2 as bytes, others as they stand."""
    at = 0
    while at < len(data):
        key, at = number(data, at)
        start = at
        if key & 7 == 0:
            _, at = number(data, at)
        elif key & 7 == 2:
            length, start = number(data, at)
            at = start + length
        else:
            at += {1: 8, 5: 4}[key & 7]
        yield key >> 3, key & 7, data[start:at]


def joined(parts: Iterable[Field]) -> bytes:
    return b"".join(
        encoded(field << 3 | kind) + (encoded(len(value)) if kind == 2 else b"") + value for field, kind, value in parts
    )


def with_float_activations(model: bytes) -> bytes:
    """The model with every QuantizeLinear-DequantizeLinear pair by-passed that has a computed input."""
    graph = next(value for field, _, value in fields(model) if field == 7)
    nodes = [list(fields(value)) for field, _, value in fields(graph) if field == 1]

    def of(node: list[Field], wanted: int) -> list[bytes]:
        return [value for field, _, value in node if field == wanted]

    quantised = {of(node, 2)[0]: of(node, 1)[0] for node in nodes if of(node, 4) == [b"QuantizeLinear"]}
    origins = {
        of(node, 2)[0]: quantised[of(node, 1)[0]]
        for node in nodes
        if of(node, 4) == [b"DequantizeLinear"] and of(node, 1)[0] in quantised
    }
    assert len(origins) == len(quantised) > 50

    def rewired(node: bytes) -> bytes:
        return joined((f, k, origins.get(v, v) if f == 1 else v) for f, k, v in fields(node))

    graph = joined((f, k, rewired(v) if f == 1 else v) for f, k, v in fields(graph))
    return joined((f, k, graph if f == 7 else v) for f, k, v in fields(model))


def sound(name: str, share: float) -> np.ndarray:
    with wave.open(str(ROOT / f"tests/questions/{name}.wav")) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
    return np.concatenate([samples[: int(len(samples) * share)], np.zeros(RATE // 5, np.float32)])


def probability(session: onnxruntime.InferenceSession, features: np.ndarray) -> float:
    return round(float(session.run(None, {"input_features": features[None]})[0].item()), 6)


def main() -> None:
    published = MODEL.read_bytes()
    exact, as_published = (
        onnxruntime.InferenceSession(model) for model in (with_float_activations(published), published)
    )
    cases = []
    for name in QUESTIONS:
        for share in SHARES:
            samples = sound(name, share)[-RATE * SECONDS :]
            features = compute_whisper_log_mel_features(np.pad(samples, (RATE * SECONDS - len(samples), 0)))
            picked = [
                [frame, band, round(float(features[band, frame]), 6)]
                for frame in (0, 500, 700, 780, 799)
                for band in (0, 20, 79)
            ]
            cases.append(
                {
                    "question": name,
                    "share": share,
                    "probability": probability(exact, features),
                    "quantised": probability(as_published, features),
                    "features": picked,
                }
            )
    versions = {name: version(name) for name in ("pipecat-ai", "onnxruntime", "numpy")}
    written = {"model": MODEL.name, "versions": versions, "cases": cases}
    text = json.dumps(written, indent=1)
    Path(__file__).with_suffix(".json").write_text(text + "\n")


if __name__ == "__main__":
    main()
