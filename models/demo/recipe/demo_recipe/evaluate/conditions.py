"""The questions as a client sends them: 24 kHz, clean, with noise, or as a telephone carries them; and recordings of
people.

The same sound each time, as far as the synthesisers give it: what is random follows from the place of the turn in its
list.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.signal import resample_poly

from ..augment import Augment, power, telephone, with_noise
from ..held_out import KINDS, SEED, Held
from ..questions import RATE, read_wave, trim

CLEAN, NOISE, TELEPHONE = "clean", "noise", "telephone"
CONDITIONS = (CLEAN, NOISE, TELEPHONE)
NOISE_DECIBELS = 15.0  # below the speech
WIRE_RATE = 24_000
# What push to talk leaves around a question.
BEFORE_S, AFTER_S = 0.25, 0.45
# Voices that talk in the background: of the single questions that stand first.
BABBLERS = 24


class Conditions:
    """Makes the sound of conversations. `singles` gives the babble its voices."""

    def __init__(self, singles: list[Held]) -> None:
        voices = [sound for held in singles[:BABBLERS] for sound in held.say()]
        # White noise, pink noise and babble, one minute each.
        self._noise = Augment(np.random.default_rng(SEED), voices)

    def turns(self, held: Held, kind: str, index: int, condition: str) -> list[bytes]:
        """Each turn of conversation `index` of a kind: little-endian PCM at 24 kHz."""
        return [
            on_the_wire(self.changed(sound, (SEED, KINDS.index(kind), index, turn), condition))
            for turn, sound in enumerate(held.say())
        ]

    def changed(self, spoken: np.ndarray, seed: tuple[int, ...], condition: str) -> np.ndarray:
        """int16 to f32 in -1..1, both at 16 kHz, with silence around; `seed` chooses the noise."""
        sound = framed(spoken)
        if condition == NOISE:
            self._noise.random = np.random.default_rng(seed)
            return with_noise(sound, self._noise.noise(len(sound)), NOISE_DECIBELS, power(sound))
        if condition == TELEPHONE:
            return telephone(sound)
        return sound


def framed(spoken: np.ndarray) -> np.ndarray:
    """int16 to f32 in -1..1 with silence around."""
    return np.pad(spoken.astype(np.float32) / 32768.0, (int(BEFORE_S * RATE), int(AFTER_S * RATE)))


def on_the_wire(sound: np.ndarray) -> bytes:
    """16 kHz to the wire's PCM."""
    raised = resample_poly(sound.astype(np.float32), WIRE_RATE // 8000, RATE // 8000)
    return np.clip(np.round(raised * 32768.0), -32768, 32767).astype("<i2").tobytes()


@dataclass(frozen=True)
class Recording:
    """A person's recorded speech; none of it is a question that the model was taught."""

    name: str
    pcm: bytes


def people(folder: Path) -> list[Recording]:
    """The recordings of Debian's `pocketsphinx-testdata`, unpacked into `folder`: several people, 16 kHz.

    Commands to a robot, numbers, playing cards and sentences read from a novel. Raw files have no header.
    """
    data = folder / "usr/share/pocketsphinx/test/data"
    paths = sorted([*data.glob("*.raw"), *data.glob("cards/*.wav"), *data.glob("librivox/*.wav")])
    return [Recording(path.name, on_the_wire(framed(loud(samples(path))))) for path in paths]


def samples(path: Path) -> np.ndarray:
    """int16 of a recording."""
    if path.suffix == ".raw":
        return np.fromfile(path, "<i2")
    sound, rate = read_wave(path.read_bytes())
    if rate != RATE:
        raise ValueError(f"{path} has {rate} samples a second, not {RATE}")
    return sound


def loud(sound: np.ndarray) -> np.ndarray:
    """As loud as the synthetic voices, without the silence around."""
    raised = sound.astype(np.float32) * (20_000 / max(1.0, float(np.abs(sound.astype(np.float32)).max())))
    return trim(raised, threshold=800.0).astype(np.int16)
