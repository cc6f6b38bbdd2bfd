"""Step `answers`: every answer of the domain in the teacher's voice.

Writes `answers/NNNNN.npz`, 100 sentences each: `samples` (i16 at 24 kHz, end to end), `frames` (codec frames of each), and
`answers/NNNNN.json` with text and phonemes. A shard that exists is not made again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from .config import FRAME
from .domain import conversations
from .progress import Progress
from .scale import Scale

SHARD = 100


@dataclass(frozen=True)
class Answer:
    """One sentence of the teacher."""

    text: str
    phonemes: list[str]  # one for each codec frame
    samples: np.ndarray  # i16


def texts(count: int) -> list[str]:
    """Up to `count` different answers. Those of small topics come all and first, since they are said most: a talker garbles what it was
    not taught. Those of large topics come as a random share."""
    said: dict[str, set[str]] = {}
    for talk in conversations(60_000, seed=11):
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


def make(work: Path, scale: Scale) -> None:
    """Speaks them all, in as many processes as the scale says."""
    folder = work / "answers"
    folder.mkdir(parents=True, exist_ok=True)
    lines = texts(scale.answers)
    shards = [(folder / f"{i // SHARD:05d}", lines[i : i + SHARD]) for i in range(0, len(lines), SHARD)]
    missing = [shard for shard in shards if not shard[0].with_suffix(".npz").exists()]
    progress = Progress("answers", len(shards), done=len(shards) - len(missing))
    with get_context("spawn").Pool(scale.processes) as pool:
        for frames in pool.imap_unordered(_speak, missing):
            progress.step(note=f"{frames * 0.08:.0f} s of speech in the last")


def _speak(shard: tuple[Path, list[str]]) -> int:
    from .voice import Voice  # the voice's packages are needed in this step only

    path, lines = shard
    voice = getattr(_speak, "voice", None) or Voice()
    _speak.voice = voice  # one for each process
    spoken = [voice.say(line) for line in lines]
    path.with_suffix(".json").write_text(json.dumps([{"text": t, "phonemes": s.phonemes} for t, s in zip(lines, spoken)]))
    samples = np.concatenate([np.clip(s.samples * 32767, -32768, 32767).astype(np.int16) for s in spoken])
    part = path.with_suffix(".part.npz")
    np.savez(part, samples=samples, frames=np.array([len(s.samples) // FRAME for s in spoken]))
    part.rename(path.with_suffix(".npz"))
    return len(samples) // FRAME


def load(work: Path) -> Iterator[Answer]:
    """All answers that were made, in order."""
    for path in sorted((work / "answers").glob("?????.npz")):
        kept = np.load(path)
        ends = np.cumsum(kept["frames"]) * FRAME
        for said, end, frames in zip(json.loads(path.with_suffix(".json").read_text()), ends, kept["frames"]):
            yield Answer(said["text"], said["phonemes"], kept["samples"][end - frames * FRAME : end])
