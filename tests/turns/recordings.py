"""Unpacks the recordings of people that the turns of `set.json` are cut from, as 16 kHz wav files.

    scripts/setup.sh turns

They are voice prompts of Debian's asterisk-core-sounds-en-g722 (Allison Smith, CC BY-SA 3.0), which `scripts/setup.sh`
fetches. A converted file that exists is kept.
"""

import json
import sys
import wave
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "models/turns/recipe"))

from turns_recipe import people  # noqa: E402

TOOLS = ROOT / "target/tools"


def write(path: Path, sound: np.ndarray) -> None:
    """Writes f32 samples at `people.RATE` as a wav file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(people.RATE)
        file.writeframes(np.clip(np.round(sound * 32767), -32768, 32767).astype("<i2").tobytes())


def main() -> None:
    turns = json.loads(Path(__file__).with_name("set.json").read_text())
    for source, file in sorted({(turn["source"], turn["file"]) for turn in turns if "source" in turn}):
        if not (TOOLS / file).exists():
            write(TOOLS / file, people.read(TOOLS / source))


if __name__ == "__main__":
    main()
