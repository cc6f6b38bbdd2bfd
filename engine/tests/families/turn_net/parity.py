"""Writes parity.json: the reference's outputs for recordings, for `turn_net.rs`.

    target/tools/recipe/bin/python engine/tests/families/turn_net/parity.py

The recordings are questions of tests/questions, whole and cut short, each with 200 ms of silence behind it. The
reference is the recipe's own network in torch, with the weights that the engine embeds.

`features` holds a few numbers of each kind, as [frame, channel, value].
"""

import json
import sys
import wave
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parents[4]
sys.path.append(str(ROOT / "models/turns/recipe"))

from turns_recipe.features import features  # noqa: E402
from turns_recipe.net import TurnNet  # noqa: E402

QUESTIONS = ["how-deep-ocean", "count-three-to-six", "name-anna", "six-times-seven", "tell-a-joke", "who-are-you"]
SHARES = [1.0, 0.7, 0.4]
PLACES = [
    *((0, 0), (100, 20), (150, 5), (180, 10), (200, 45), (210, 60), (220, 50), (230, 70)),
    *((240, 25), (250, 40), (260, 15), (270, 94), (280, 2), (290, 55), (310, 94), (319, 0)),
]


def sound(question: str, share: float) -> np.ndarray:
    with wave.open(str(ROOT / f"tests/questions/{question}.wav")) as file:
        assert file.getframerate() == 16_000
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
    return np.concatenate([samples[: int(len(samples) * share)], np.zeros(3_200, np.float32)])


def main() -> None:
    net = TurnNet()
    weights = load_file(ROOT / "models/turns/model.safetensors")
    net.load_state_dict({name: weight.float() for name, weight in weights.items()})
    net.eval()
    cases = []
    for question in QUESTIONS:
        for share in SHARES:
            x = features([sound(question, share)])
            with torch.no_grad():
                probability = float(net(x).sigmoid()[0])
            shown = [[frame, channel, round(float(x[0, frame, channel]), 6)] for frame, channel in PLACES]
            case = {"question": question, "share": share, "probability": round(probability, 6), "features": shown}
            cases.append(case)
    expected = {"torch": torch.__version__.split("+")[0], "cases": cases}
    Path(__file__).with_name("parity.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main()
