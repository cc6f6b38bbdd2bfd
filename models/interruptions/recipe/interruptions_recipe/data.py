"""Examples: the begin of a voice behind a little silence, with what follows, changed by rooms, noise and lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from demo_recipe.augment import Augment, dull, power, telephone, with_noise

from . import noises, synthesised, voices, words
from .features import HOP, RATE
from .net import KINDS
from .spoken import LANGUAGES

FRAMES = 76  # 1.2 s
SAMPLES = FRAMES * HOP
AFTER = 14  # frames behind the end of a voice that are judged
# Shares of the examples: sentences, commands, backchannels, neither.
SHARES = {"interruption": 0.3, "command": 0.25, "backchannel": 0.28, "neither": 0.17}
# Numbers of the words that training tells apart: in Kokoro's symbols, and `LANGUAGE:TEXT` of the formant synthesisers.
WORDS = {
    word: number
    for number, word in enumerate(
        sorted(
            {
                word
                for table in (words.BACKCHANNELS, words.COMMANDS)
                for language in LANGUAGES
                for word in words.listed(table, language)
            }
            | {
                f"{language}:{text}"
                for language, texts in synthesised.TEXTS.items()
                for text in "|".join(texts).split("|")
            }
        )
    )
}
# Share of the words that no formant synthesiser says, at least.
NATURAL = 0.7
# Of the sounds that are neither: synthesised ones, and many voices at once.
SYNTHESISED, BABBLE = 0.4, 0.1


@dataclass
class Start:
    """A voice without silence around it, f32 at `RATE`."""

    sound: np.ndarray
    kind: str
    speaker: str
    # Index in `WORDS`, -1 for another sound.
    word: int = -1


def read(path: Path) -> Start:
    file = np.load(path)
    meta = json.loads(str(file["meta"]))
    said = meta.get("symbols", "").rstrip(".!,?")
    if path.stem.startswith("synthesised-"):
        said = ":".join(synthesised.drawn(int(path.stem.removeprefix("synthesised-")))[2:])
    return Start(file["sound"].astype(np.float32) / 32768.0, meta["kind"], meta["voice"], WORDS.get(said, -1))


def is_apart(speaker: str) -> bool:
    """True for voices that judge or choose."""
    judged = {name for names in words.JUDGED.values() for name in names}
    return any(name in judged or name in words.CHOOSING for name in speaker.split("+"))


def turns(folder: Path) -> Iterator[Start]:
    """Begins of the turns that the turn-detection model learns from (models/turns/recipe), if they are there."""
    for path in sorted(folder.glob("kokoro/[0-9]*.npz")) + sorted(folder.glob("people/*.npz")):
        if ".part" in path.name:
            continue
        file = np.load(path)
        meta = json.loads(str(file["meta"]))
        if is_apart(meta["voice"]):
            continue
        sound = file["sound"].astype(np.float32) / 32768.0
        begins = [0, *(at for at, kind in meta["pauses"] if kind != "splice")][:2]
        for begin in begins:
            start = voices.trimmed(sound[begin : begin + 2 * RATE])
            if len(start) > RATE:
                yield Start(start, "interruption", "person" if "people" in path.parts else meta["voice"])


class Examples:
    """Random examples of some starts."""

    def __init__(self, starts: list[Start], first_seed: int) -> None:
        self._random = np.random.default_rng(0)
        sentences = [start for start in starts if start.kind == "interruption"]
        self._augment = Augment(self._random, [(start.sound * 32767).astype(np.int16) for start in sentences[:300]])
        self._groups = {kind: [start for start in starts if start.kind == kind] for kind in SHARES}
        self._natural = {
            kind: [start for start in group if "+" not in start.speaker or start.speaker[2] == "_"]
            for kind, group in self._groups.items()
        }
        self._first_seed = first_seed

    def seed(self, seed: int) -> None:
        """The next examples follow from `seed` alone."""
        self._random = self._augment.random = np.random.default_rng(seed)

    def _neither(self) -> np.ndarray:
        random, group = self._random, self._groups["neither"]
        drawn = random.random()
        if drawn < SYNTHESISED or not group:
            return noises.noise(noises.KINDS[random.integers(4)], self._first_seed + int(random.integers(100_000)))
        if drawn < SYNTHESISED + BABBLE:
            sound = self._augment.pools[2][random.integers(RATE * 50) :][: int(random.uniform(0.3, 1.6) * RATE)]
            return (sound * np.sin(np.linspace(0.05, np.pi, len(sound))) ** 0.5 * 0.2).astype(np.float32)
        return group[random.integers(len(group))].sound

    def next(self) -> tuple[np.ndarray, int, int, int, int]:
        """(sound of `SAMPLES`, index in `KINDS`, first and last frame that are judged, index in `WORDS` or -1)."""
        random = self._random
        kind = str(random.choice(list(SHARES), p=list(SHARES.values())))
        # Most words are of voices that sound like people's: of formant synthesisers alone a network learns too easily.
        group = (self._natural if random.random() < NATURAL else self._groups)[kind]
        word = -1
        if kind == "neither":
            sound = self._neither()
        else:
            start = group[random.integers(len(group))]
            sound, word = start.sound, start.word
        if kind == "interruption" and random.random() < 0.15:
            # A backchannel or a command, a short pause, and a sentence.
            words_ = self._groups[str(random.choice(["backchannel", "command"]))]
            first = words_[random.integers(len(words_))].sound
            gap = np.zeros(int(random.uniform(0.02, 0.12) * RATE), np.float32)
            sound = np.concatenate([first, gap, sound * random.uniform(0.6, 1.2)])
        if kind == "interruption" and random.random() < 0.2:
            sound = sound[: int(random.uniform(0.7, 1.5) * RATE)]
        index = 0 if kind == "command" else KINDS.index(kind)
        sound = self._changed(sound[:SAMPLES])
        before = int(random.uniform(0.03, 0.16) * RATE)
        whole = np.zeros(SAMPLES, np.float32)
        sound = sound[: SAMPLES - before]
        whole[before : before + len(sound)] = sound
        speech = power(sound)
        decibels = random.uniform(10.0, 30.0) if random.random() < 0.3 else random.uniform(30.0, 65.0)
        whole = with_noise(whole, self._augment.noise(SAMPLES), decibels, speech)
        if random.random() < 0.2:
            whole = telephone(whole)
        whole *= 10.0 ** random.uniform(-2.2, -0.05) / (np.abs(whole).max() + 1e-9)
        first, last = before // HOP + 4, min(FRAMES, (before + len(sound)) // HOP + AFTER)
        return whole.astype(np.float32), index, first, last, word

    def _changed(self, sound: np.ndarray) -> np.ndarray:
        """Another person, room and microphone, as `Augment` does it."""
        random, augment = self._random, self._augment
        if random.random() < 0.6:
            samples = int(len(sound) / random.uniform(0.82, 1.2))
            places = np.linspace(0.0, len(sound) - 1.0, samples)
            sound = np.interp(places, np.arange(len(sound)), sound).astype(np.float32)
        if random.random() < 0.6:
            sound = augment.colour_and_room(sound)
        if random.random() < 0.2:
            sound = dull(sound, random.uniform(3_400.0, 6_000.0))
        return sound.astype(np.float32)
