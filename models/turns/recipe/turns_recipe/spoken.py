"""Turns spoken by Kokoro, with the pauses that a speaker could make in them.

A turn is a list of pieces; after each piece but the last the speaker may pause and continue. Kokoro says the whole turn
at once, so that each piece has the intonation of its place. Before a hesitation the last vowel is longer and the pitch
of the last word level, as people do it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.signal import resample_poly

from demo_recipe import kokoro, phonemes

RATE = 16_000
KINDS = ("clause", "hesitation", "list", "number", "spelled", "sentence", "splice")
VOWELS = "AIOQWYaeiouæɑɒɔəɛɜɪʊʌᵻ"
STEP = RATE // 100
PAUSE_UNITS = 9  # of 25 ms, at a place where the speaker may pause: by itself this export of Kokoro hardly pauses
AHEAD = RATE * 6 // 100  # samples that the sound is ahead of the durations
# Voices of the judged turns. Training has the others.
HELD_OUT = ("af_river", "af_sarah", "am_eric", "am_liam", "am_onyx", "bf_emma", "bf_lily", "bm_lewis")


@dataclass(frozen=True)
class Piece:
    """A part of a turn, and the kind of the pause after it; "end" after the last one."""

    text: str
    kind: str


@dataclass
class Spoken:
    """A spoken turn: f32 at `RATE`, -1..1, and where each pause may be."""

    sound: np.ndarray
    pauses: list[tuple[int, str]]  # sample behind a piece's voice, kind of the pause
    voice_end: int  # sample behind the last piece's voice


def training_voices() -> list[str]:
    """Names of the voices that no judged turn has."""
    every = sorted(path.stem for path in (kokoro.FOLDER / "voices").glob("*.bin"))
    return [voice for voice in every if voice not in HELD_OUT]


@cache
def _parts() -> tuple:
    """Sessions: symbols to durations; with durations to pitch and loudness; with these to sound."""
    import onnx

    model = onnx.load(kokoro.FOLDER / "model.onnx")
    melody = [kokoro.PITCH, kokoro.LOUDNESS]
    return (
        kokoro._part(model, [], [kokoro.DURATIONS]),
        kokoro._part(model, [kokoro.DURATIONS], melody),
        kokoro._part(model, [kokoro.DURATIONS, *melody], [kokoro.SOUND]),
    )


def say(
    pieces: Sequence[Piece], voice: str, random: np.random.Generator, speed: float = 1.0, splices: int = 0
) -> Spoken:
    """Speaks a turn. `splices` is the most pauses at borders of words inside the pieces."""
    accent = phonemes.BRITISH if voice.startswith("b") else phonemes.AMERICAN
    symbols, borders = "", []  # border: symbols up to the last one of a piece, kind
    for piece in pieces:
        said = phonemes.of(piece.text, accent)
        if piece.kind != "end" and said[-1] not in phonemes.MARKS:
            said += ","  # only a sign becomes silence
        if symbols:
            symbols += " "
        at = len(symbols)
        if splices:
            inside = [at + index for index, symbol in enumerate(said) if symbol == " " and said[index - 1].isalpha()]
            borders += [(index, "splice") for index in random.permutation(inside)[:splices]]
        symbols += said
        borders.append((at + len(said.rstrip(phonemes.MARKS + " ")), piece.kind))
    borders.sort()
    to_durations, to_melody, to_sound = _parts()
    feed = {"tokens": kokoro.ids(symbols), "style": kokoro.style(voice)[min(len(symbols), 509)]}
    chosen = to_durations.run([kokoro.DURATIONS], feed | ({"speed": np.array([speed], np.float32)}))[0].reshape(-1)
    durations = np.maximum(1.0, np.round(chosen)).astype(np.float32)
    words = {}  # first symbol of the word before a hesitation, by the border
    for border, kind in borders[:-1]:
        if kind == "splice":
            continue
        # A pause of the voice's own, so that the word before it dies away: the sign behind it lasts longer.
        durations[border + 1] = max(durations[border + 1], PAUSE_UNITS)
        if kind == "hesitation":
            words[border] = symbols.rfind(" ", 0, border) + 1
            vowels = [index for index in range(words[border], border) if symbols[index] in VOWELS]
            if vowels:
                durations[vowels[-1] + 1] = np.round(durations[vowels[-1] + 1] * random.uniform(1.5, 2.6) + 1.0)
    feed[kokoro.DURATIONS] = durations[None]
    pitch, loudness = to_melody.run([kokoro.PITCH, kokoro.LOUDNESS], feed)
    ends = np.cumsum(durations)  # units up to a symbol's end; symbol `index` is at `index + 1`, behind the pad
    for border, first in words.items():
        level(pitch.reshape(-1), int(ends[first] * kokoro.PER_UNIT), int(ends[border] * kokoro.PER_UNIT), random)
    feed |= {kokoro.PITCH: pitch, kokoro.LOUDNESS: loudness}
    sound = resample_poly(to_sound.run([kokoro.SOUND], feed)[0].reshape(-1), 2, 3).astype(np.float32)
    sound = sound * (0.6 / (np.abs(sound).max() + 1e-6))
    unit = kokoro.UNIT * RATE // kokoro.RATE
    levels = np.sqrt(np.square(sound[: len(sound) // STEP * STEP].reshape(-1, STEP)).mean(1))
    loud = np.flatnonzero(levels > levels.max() / 20)
    pauses = []
    for border, kind in borders[:-1]:
        # The sound is somewhat ahead of the durations.
        end = int(ends[border] * unit) - AHEAD
        if kind == "splice":
            pauses.append((quietest(levels, end - 2 * STEP, end + 2 * STEP) * STEP, kind))
            continue
        # Some words are drawn out in place of a pause: these have none.
        pause = quietest(levels, end, end + (PAUSE_UNITS - 1) * unit)
        before = loud[loud < pause]
        if len(before) and levels[pause] < levels.max() / 20:
            pauses.append(((int(before[-1]) + 1) * STEP, kind))
    last = (int(loud[-1]) + 1) * STEP
    return Spoken(sound[: last + RATE // 10], pauses, last)


def quietest(levels: np.ndarray, begin: int, end: int) -> int:
    """Index of the quietest 10 ms between two samples."""
    first = max(0, begin // STEP)
    return first + int(levels[first : max(first + 1, end // STEP)].argmin())


def level(pitch: np.ndarray, begin: int, end: int, random: np.random.Generator) -> None:
    """Flattens the pitch between two places towards its mean, in place; unvoiced values stay."""
    part = pitch[begin:end]
    voiced = part > kokoro.Melody.VOICED
    if voiced.any():
        mean = part[voiced].mean() * random.uniform(0.97, 1.06)
        part[voiced] = mean + (part[voiced] - mean) * random.uniform(0.1, 0.4)
