"""Examples: a turn up to a pause or to its end, with some room tone behind it, and how likely it has ended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from demo_recipe.augment import Augment, dull, power, telephone, with_noise

from .features import SAMPLES

RATE = 16_000
# How likely a turn has ended, by the kind of the pause. Sentences sound finished, and often the turn goes on. Pauses of
# people's prompts are mostly inside a sentence where they are short.
LABELS = {
    "end": 1.0,
    "clause": 0.0,
    "hesitation": 0.0,
    "list": 0.0,
    "number": 0.0,
    "spelled": 0.0,
    "splice": 0.0,
    "sentence": 0.7,
    "short": 0.05,
    "long": 0.4,
}
# Shares of the examples: ends, pauses with their intonation, splices; half of each are people's.
SHARES = (0.5, 0.35, 0.15)
# Speakers whose examples choose thresholds; no example of training.
CHOOSING = ("af_heart", "am_puck", "bm_george", "asterisk-core-sounds-it-g722", "asterisk-prompt-es-co")


@dataclass
class Source:
    """A recorded turn: int16 at `RATE`, and its places with their kinds, the end among them."""

    speaker: str
    sound: np.ndarray
    places: list[tuple[int, str]]

    @staticmethod
    def read(path: Path) -> Source:
        file = np.load(path)
        meta = json.loads(str(file["meta"]))
        places = [(at, kind) for at, kind in meta["pauses"] if at > RATE // 4]
        return Source(meta["voice"], file["sound"], [*places, (meta["voice_end"], "end")])

    def is_person(self) -> bool:
        """True for a person's prompt, false for a voice of Kokoro."""
        return self.speaker.startswith("asterisk")

    def is_choosing(self) -> bool:
        """True if it chooses thresholds; None of its voices is heard in training."""
        return any(name in self.speaker for name in CHOOSING)


def sources(work: Path, choosing: bool) -> list[Source]:
    """The turns of the work folder that train, or those that choose thresholds."""
    paths = sorted((work / "kokoro").glob("[0-9]*.npz")) + sorted((work / "people").glob("*.npz"))
    every = (Source.read(path) for path in paths if ".part" not in path.name)
    return [source for source in every if source.is_choosing() == choosing]


def room_tone(sound: np.ndarray, samples: int) -> np.ndarray:
    """The quietest 50 ms, forwards and backwards in turn. Prompts have little room tone."""
    step = RATE // 100
    levels = np.square(sound[: len(sound) // step * step].reshape(-1, step)).mean(1)
    first = int(np.convolve(levels, np.ones(5), "valid").argmin()) * step
    quietest = sound[first : first + 5 * step]
    return np.resize(np.concatenate([quietest, quietest[::-1]]), samples)


class Examples:
    """Random examples of some sources."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._random = np.random.default_rng(0)
        self._augment = Augment(self._random, [source.sound for source in sources[:200]])
        # Ends, pauses and splices of Kokoro, then those of people: if one of the two made most ends and the other most
        # pauses, the network would learn to tell them apart.
        groups: list[list] = [[] for _ in range(2 * len(SHARES))]
        for source in sources:
            for at, kind in source.places:
                group = 0 if kind == "end" else 2 if kind == "splice" else 1
                groups[group + len(SHARES) * source.is_person()].append((source, at, kind))
        self._groups = [group for group in groups if group]
        shares = np.array([share for share, group in zip(SHARES * 2, groups, strict=True) if group])
        self._shares = shares / shares.sum()

    def seed(self, seed: int) -> None:
        """The next examples follow from `seed` alone."""
        self._random = self._augment.random = np.random.default_rng(seed)

    def next(self) -> tuple[np.ndarray, float, str]:
        """(sound up to the judgement, label, kind)."""
        random = self._random
        group = self._groups[random.choice(len(self._groups), p=self._shares)]
        source, at, kind = group[random.integers(len(group))]
        sound = source.sound.astype(np.float32) / 32768.0
        # As long as the voice detector takes to notice a pause, or as a later judgement.
        silence = random.uniform(0.12, 0.45) if random.random() < 0.7 else random.uniform(0.45, 1.3)
        room = room_tone(sound, int((silence + 0.4) * RATE))
        begin = max(0, at - SAMPLES)
        if random.random() < 0.25:
            begin = max(begin, at - int(random.uniform(0.5, 3.0) * RATE))
        before = room[: int(random.uniform(0.0, 0.3) * RATE)] if begin == 0 else room[:0]
        turn = np.concatenate([before, sound[begin:at], room[: int(silence * RATE)]])
        return self._changed(turn), LABELS[kind], kind

    def _changed(self, sound: np.ndarray) -> np.ndarray:
        """Another person, room, microphone and line, as `Augment` does it; the pause keeps its length."""
        random, augment = self._random, self._augment
        if random.random() < 0.3:
            return sound
        if random.random() < 0.6:
            samples = int(len(sound) / random.uniform(0.87, 1.15))
            places = np.linspace(0.0, len(sound) - 1.0, samples)
            sound = np.interp(places, np.arange(len(sound)), sound).astype(np.float32)
        if random.random() < 0.4:
            sound = augment.colour_and_room(sound)
        if random.random() < 0.2:
            sound = dull(sound, random.uniform(3_400.0, 6_000.0))
        if random.random() < 0.5:
            sound = with_noise(sound, augment.noise(len(sound)), random.uniform(8.0, 50.0), power(sound))
        if random.random() < 0.2:
            sound = telephone(sound)
        return sound.astype(np.float32)
