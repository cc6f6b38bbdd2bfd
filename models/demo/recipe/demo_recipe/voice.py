"""The teacher of the demo model's voice: Kokoro's `af_heart`, whose phonemes last a whole number of codec frames.

The neural voice decides for each phoneme how long it lasts; rounding that to codec frames before the melody and the
sound are made makes a codec frame a phoneme, or an even part of one, in its context. What the talker has to learn is
then close to spelling out pronunciation, and an error in one frame does not shift the frames behind it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
from scipy.signal import resample_poly

from . import codes, kokoro, phonemes
from .answers import SPELLED, UNUSUAL
from .config import FRAME, SAMPLE_RATE
from .kokoro import Melody, Teacher

VOICE = "af_heart"
UNITS = 3  # of duration in a codec frame
# Played a semitone lower than it was made, three units are 80 ms.
PLAYED_AT = UNITS * kokoro.UNIT * SAMPLE_RATE // FRAME
PER_FRAME = UNITS * kokoro.PER_UNIT  # values of pitch and loudness in a codec frame
LONGEST_END = 4  # frames of silence behind a sentence
SLOWER = 1.2  # times the voice's own durations
# What espeak-ng reads wrong of the answers' words.
MISREAD = {"wˈuf": "wˈʊf", "ɹˈAkʤəvˌɪk": "ɹˈAkjəvˌɪk"}
# It hardly says an "I" that begins a sentence: a frame without stress, which is not heard where nothing comes before
# it.
FAINT = re.compile(r"(^|[.!?] )I( |əm)")


@dataclass(frozen=True)
class Plan:
    """A sentence before it sounds: what the codes are made of."""

    melody: Melody
    cut: int  # frames of silence at the start that are left away
    pitch: np.ndarray  # f32 [frames, PER_FRAME], in Hz as it is played; low where nothing is voiced
    codes: np.ndarray  # i64 [frames, books]


class Voice:
    """The teacher. One thread; make one in each process."""

    def __init__(self, sound: bool = True) -> None:
        """Without `sound` it only plans."""
        self._teacher = Teacher(VOICE, sound)

    def plan(self, text: str) -> Plan:
        """Plans the codes of a text in a tenth of a second. The same each time."""
        symbols = clear(phonemes.of(aloud(text)))
        durations, places = lock(symbols, self._teacher.durations(symbols) * pace(text))
        melody = self._teacher.melody(symbols, durations)
        # A caller does not wait for silence. Its last frame holds the first sound's onset.
        cut = places[0][2] - 1
        pitch, loudness = (
            x.reshape(-1, PER_FRAME)[cut:] for x in (melody.pitch * (PLAYED_AT / kokoro.RATE), melody.loudness)
        )
        return Plan(melody, cut, pitch, codes.of([("", 0, 1), *places[cut + 1 :]], pitch, loudness))

    def say(self, text: str) -> tuple[Plan, np.ndarray]:
        """Plans a text and speaks it: f32 at 24 kHz, a whole number of codec frames."""
        plan = self.plan(text)
        common = math.gcd(SAMPLE_RATE, PLAYED_AT)
        sound = resample_poly(self._teacher.sound(plan.melody), SAMPLE_RATE // common, PLAYED_AT // common).astype(
            np.float32
        )
        sound = sound[plan.cut * FRAME :]
        wanted = len(plan.codes) * FRAME
        return plan, np.pad(sound, (0, max(0, wanted - len(sound))))[:wanted]


def aloud(text: str) -> str:
    """A text as the teacher reads it. It stops behind a word that is spelled and before its letters, as people do:
    without that "Bread is spelled S" is heard as "bredispelled" and "spell das".
    """
    return SPELLED.sub(r"\1, is spelled, ", text)


def clear(symbols: str) -> str:
    """The symbols of a text as they should be said."""
    for wrong, right in MISREAD.items():
        symbols = symbols.replace(wrong, right)
    return FAINT.sub(lambda found: f"{found[1]}ˈI " + ("æm" if found[2] == "əm" else ""), symbols)


def pace(text: str) -> float:
    """Duration of a text, relative to the voice's own choice: sounds and young of animals stand alone in a short
    sentence.
    """
    return SLOWER if UNUSUAL.match(text) else 1.0


def lock(symbols: str, free: np.ndarray) -> tuple[np.ndarray, list[tuple[str, int, int]]]:
    """Durations rounded so that each segment lasts whole codec frames, at least one, and of each frame its phoneme, its
    place in it and the phoneme's frames.

    `free` is the voice's own choice in units, with a pad before and behind. The pad before carries the first sound's
    onset.
    """
    free = free.copy()
    free[-1] = min(free[-1], LONGEST_END * UNITS)
    locked = np.zeros_like(free)
    places: list[tuple[str, int, int]] = []
    for group in [[0], *([1 + at for at in segment] for segment in phonemes.segments(symbols)), [len(free) - 1]]:
        total = free[group].sum()
        frames = max(1, math.floor(total / UNITS + 0.5))
        share = free[group] / total * frames * UNITS
        whole = np.floor(share)
        # What flooring lost goes to those that lost most.
        left = round(frames * UNITS - whole.sum())
        whole[np.argsort(whole - share, kind="stable")[:left]] += 1
        locked[group] = whole
        name = phonemes.name("".join(symbols[at - 1] for at in group if 0 < at < len(free) - 1))
        places += [(name, place, frames) for place in range(frames)]
    return locked.astype(np.float32), places
