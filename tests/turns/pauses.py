"""Writes pauses.json: where `make bench-turns` puts pauses into recordings of people.

    target/tools/python/bin/python tests/turns/pauses.py

The recordings are those of Debian's pocketsphinx-testdata, unpacked under target/tools/people by `scripts/setup.sh
speech`: commands, numbers and playing cards by several speakers, and sentences that a reader of LibriVox reads from a
novel. A pause may come after every word but the last, where `tests/heard/word_times.py` takes the word to end. The list
was written once and is not chosen by what a detector makes of it.
"""

import json
import subprocess
import sys
import tempfile
import wave
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "target/tools/people/usr/share/pocketsphinx/test/data"
RATE = 16_000
NOVEL = "librivox/sense_and_sensibility_01_austen_64kb-{}.wav"
SAID = {
    "goforward.raw": "go forward ten meters",
    "something.raw": "go somewhere and do something",
    "cards/001.wav": "ten of clubs",
    "cards/002.wav": "four queen of clubs",
    "cards/003.wav": "seven of clubs",
    "cards/005.wav": "eight of spades four of clubs seven of hearts",
    NOVEL.format(
        "0870"
    ): "and mister john dashwood had then leisure to consider how much there might be prudently in his power to do "
    "for them",
    NOVEL.format("0880"): "he was not an ill disposed young man",
    NOVEL.format("0890"): "unless to be rather cold hearted and rather selfish is to be ill disposed",
    NOVEL.format(
        "0920"
    ): "had he married a more amiable woman he might have been made still more respectable than he was",
    NOVEL.format("0930"): "he might even have been made amiable himself",
}


def as_wave(name: str, folder: Path) -> Path:
    path = DATA / name
    if path.suffix == ".wav":
        return path
    copy = folder / f"{path.stem}.wav"
    with wave.open(str(copy), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(path.read_bytes())
    return copy


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: str(as_wave(name, Path(folder))) for name in SAID}
        told = [argument for name, text in SAID.items() for argument in (paths[name], text)]
        times = json.loads(subprocess.check_output([sys.executable, ROOT / "tests/heard/word_times.py", *told]))
    recordings = []
    for name, text in SAID.items():
        words = times[paths[name]]["words"]
        print(f"{name}: told {text!r}, heard {times[paths[name]]['heard']!r}", [word["end_ms"] for word in words])
        recordings.append({"file": name, "said": text, "pauses_ms": [word["end_ms"] for word in words[:-1]]})
    Path(__file__).with_suffix(".json").write_text(json.dumps(recordings, indent=1) + "\n")


if __name__ == "__main__":
    main()
