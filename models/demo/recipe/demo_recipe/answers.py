"""Steps `answers` and `codes`: the domain's answers in the teacher's voice, and many more of them as codes alone.

`answers` writes `answers/NNNNN.npz`, 50 sentences each: `samples` (i16 at 24 kHz, end to end), `pitch` (f32 in Hz,
`[frames, 6]`), `codes` (u8 `[frames, CODEBOOKS]`) and `frames` of each sentence; `answers/NNNNN.json` has the texts.
`codes` writes `codes/NNNNN.*` without sound and pitch. A shard that exists is not made again.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .config import FRAME
from .domain import conversations
from .progress import Progress
from .scale import Scale

if TYPE_CHECKING:
    from .voice import Voice

SHARD = 50
PLANNED_SHARD = 500
SPELLED = re.compile(r"^(\w+) is spelled (?=[A-Z](?:, [A-Z])+\.)")
UNUSUAL = re.compile(r"^A (\w+ says|baby \w+ is) ")  # what a word follows that people hardly say
# How much more often the former come in the talker's training, and both in the codec's.
SPELLED_MORE, BARE_MORE = 3, 4
MOST_OFTEN = (
    5  # how much more often an answer comes in training that conversations give all the time, than one sum of thousands
)


@dataclass(frozen=True)
class Answer:
    """One sentence of the teacher."""

    text: str
    codes: np.ndarray  # u8 [frames, CODEBOOKS]
    samples: np.ndarray | None  # i16, or none where only codes were made


def texts(count: int) -> list[str]:
    """Up to `count` different answers. Those of small topics come all and first, since they are said most: a talker
    garbles what it was not taught. Those of large topics come as a random share.
    """
    said: dict[str, set[str]] = {}
    for talk in conversations(60_000 if count <= 5_000 else 240_000, seed=11):
        for turn in talk.turns:
            said.setdefault(turn.topic, set()).add(turn.answer)
    order = random.Random(3)
    chosen: dict[str, None] = {}
    queues = [order.sample(sorted(s), len(s)) for _, s in sorted(said.items())]
    while any(queues) and len(chosen) < count:
        for queue in queues:
            if queue and len(chosen) < count:
                chosen[queue.pop()] = None
    return list(chosen)


def often(said: list[str]) -> list[int]:
    """Weight of each of these answers in the codec's training, relative to the rarest. Letters, and what animals say,
    have nothing around them that helps to understand a sound that is a little wrong.
    """
    given = Counter(turn.answer for talk in conversations(3_000, seed=23) for turn in talk.turns)
    return [
        (1 + min(MOST_OFTEN, given[text])) * (BARE_MORE if SPELLED.match(text) or UNUSUAL.match(text) else 1)
        for text in said
    ]


def given(said: list[str]) -> list[int]:
    """Weight of each of these answers in the talker's training, relative to the rarest: as in conversations, and more
    for spelled words. No word of them tells which letter is next, only how many there were.
    """
    counts = Counter(turn.answer for talk in conversations(30_000, seed=23) for turn in talk.turns)
    return [(1 + counts[text]) * (SPELLED_MORE if SPELLED.match(text) else 1) for text in said]


def make(work: Path, scale: Scale) -> None:
    """Speaks the first `scale.answers` of them, in as many processes as the scale says."""
    _make(work / "answers", texts(scale.answers), SHARD, True, scale)


def plan(work: Path, scale: Scale) -> None:
    """Makes the codes of the first `scale.planned` of them, which are many more: without sound it is twenty times as
    quick.
    """
    _make(work / "codes", texts(scale.planned), PLANNED_SHARD, False, scale)


def _make(folder: Path, lines: list[str], size: int, sound: bool, scale: Scale) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shards = [(folder / f"{i // size:05d}", lines[i : i + size], sound) for i in range(0, len(lines), size)]
    missing = [shard for shard in shards if not shard[0].with_suffix(".npz").exists()]
    progress = Progress(folder.name, len(shards), done=len(shards) - len(missing))
    with get_context("spawn").Pool(scale.processes) as pool:
        for frames in pool.imap_unordered(_speak, missing):
            progress.step(note=f"{frames * 0.08:.0f} s of speech in the last")


@cache
def _voice(sound: bool) -> Voice:
    """One for each process."""
    from .voice import Voice  # the voice's packages are needed in these steps only

    return Voice(sound)


def _speak(shard: tuple[Path, list[str], bool]) -> int:
    path, lines, sound = shard
    voice = _voice(sound)
    plans, sounds = [], []
    for line in lines:
        if sound:
            planned, samples = voice.say(line)
            sounds.append(np.clip(samples * 32767, -32768, 32767).astype(np.int16))
        else:
            planned = voice.plan(line)
        plans.append(planned)
    path.with_suffix(".json").write_text(json.dumps(lines))
    kept = {
        "codes": np.concatenate([p.codes for p in plans]).astype(np.uint8),
        "frames": np.array([len(p.codes) for p in plans]),
    }
    if sound:
        kept |= {"samples": np.concatenate(sounds), "pitch": np.concatenate([p.pitch for p in plans])}
    part = path.with_suffix(".part.npz")
    np.savez(part, **kept)
    part.rename(path.with_suffix(".npz"))
    return len(kept["codes"])


def load(work: Path, step: str = "answers") -> Iterator[Answer]:
    """All that the step made, in order."""
    for path in sorted((work / step).glob("?????.npz")):
        yield from shard(path)


def shard(path: Path) -> Iterator[Answer]:
    """Those of one shard."""
    kept, end = dict(np.load(path)), 0
    for text, frames in zip(json.loads(path.with_suffix(".json").read_text()), kept["frames"].tolist(), strict=True):
        start, end = end, end + frames
        samples = kept["samples"][start * FRAME : end * FRAME] if "samples" in kept else None
        yield Answer(text, kept["codes"][start:end], samples)


def aligned(work: Path, name: str) -> np.ndarray | None:
    """The codes of a shard of `answers` as the step `align` made them, if it did."""
    path = work / "aligned" / f"{name}.npy"
    return np.load(path) if path.exists() else None
