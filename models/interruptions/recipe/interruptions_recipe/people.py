"""People's laughs, coughs, groans and shouts: the voices of Debian's hedgewars-data (sounds: GFDL 1.3).

`scripts/setup.sh interruptions` unpacks them under target/tools/human. None is in this repository. A folder is a
speaker; training hears no folder of `JUDGED`, nor a file that also stands in one.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

HOME = Path(__file__).parents[4] / "target/tools/human/usr/share/games/hedgewars/Data/Sounds/voices"
JUDGED = ("British", "Default_es", "Russian", "Singer", "Surfer")
CHOOSING = ("Mobster",)
# No person: a vocoder.
LEFT_OUT = ("Robot",)
NEITHER = ("Laugh", "PoisonCough", "PoisonMoan", "Ooff1", "Ooff2", "Ooff3", "Ow1", "Ow2", "Ow3", "Ow4")
BACKCHANNELS = ("Hmm",)
INTERRUPTIONS = (
    "Comeonthen", "Cutitout", "Gonnagetyou", "Illgetyou", "Incoming", "Justyouwait", "Leavemealone", "Runaway",
    "Takecover", "Thisoneismine", "Watchthis", "Whatthe", "Youllregretthat", "Hurry", "Nooo", "Stupid", "Traitor",
)  # fmt: skip


def kind(path: Path) -> str | None:
    """Kind of a sound by its name."""
    names = {"neither": NEITHER, "backchannel": BACKCHANNELS, "interruption": INTERRUPTIONS}
    return next((kind for kind, listed in names.items() if path.stem in listed), None)


def paths(folders: tuple[str, ...]) -> list[tuple[Path, str]]:
    """Sounds of these speakers with their kinds, by name; each sound once."""
    found: dict[str, tuple[Path, str]] = {}
    for folder in folders:
        for path in sorted((HOME / folder).glob("*.ogg")):
            if named := kind(path):
                found.setdefault(hashlib.sha256(path.read_bytes()).hexdigest(), (path, named))
    return list(found.values())


def training() -> list[tuple[Path, str]]:
    """Sounds of the speakers that are neither judged nor choose."""
    apart = {hashlib.sha256(path.read_bytes()).digest() for path, _ in paths(JUDGED + CHOOSING)}
    others = tuple(sorted(path.name for path in HOME.iterdir() if path.name not in JUDGED + CHOOSING + LEFT_OUT))
    return [found for found in paths(others) if hashlib.sha256(found[0].read_bytes()).digest() not in apart]
