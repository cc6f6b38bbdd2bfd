"""`python -m demo_recipe.evaluate.hear FOLDER`: the word error rate of each level that the steps `listen` and
`held-out` wrote there, and what listeners would say of it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from ..questions import read_wave
from .ear import Ear
from .naturalness import Opinion
from .sound import RATE
from .words import Errors, errors


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m demo_recipe.evaluate.hear", description=__doc__)
    parser.add_argument("folder", type=Path, help="WORK/listen or WORK/voice")
    parser.add_argument(
        "--into",
        type=Path,
        help="add the rates in percent and the votes to this JSON file: models/demo/held-out/voice.json",
    )
    parser.add_argument("--wrong", action="store_true", help="also say what was heard wrong")
    options = parser.parse_args()
    texts = json.loads((options.folder / "texts.json").read_text())
    rates, votes, opinion = {}, {}, Opinion()
    with Ear() as ear:
        for level in sorted(path for path in options.folder.iterdir() if path.is_dir()):
            read = [read_wave((level / f"{number:02}.wav").read_bytes())[0] for number in range(len(texts))]
            sounds = [sound.astype(np.float32) / 32768 for sound in read]
            heard = [future.result() for future in [ear.hear(sound) for sound in sounds]]
            found = [errors(text, one) for text, one in zip(texts, heard, strict=True)]
            total = sum(found, Errors(0, 0))
            rates[level.name], votes[level.name] = round(100 * total.rate, 1), round(opinion.mean(sounds, RATE), 2)
            print(
                f"{level.name:8} {100 * total.rate:5.1f} % of {total.words} words wrong, predicted opinion "
                f"{votes[level.name]:.2f}, "
                f"{len(texts)} answers",
                flush=True,
            )
            for text, one, error in zip(texts, heard, found, strict=True):
                if options.wrong and error.wrong:
                    print(f"    {text} -> {one}")
    if options.into:
        options.into.write_text(
            json.dumps(json.loads(options.into.read_text()) | {"word_errors": rates, "opinion": votes}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
