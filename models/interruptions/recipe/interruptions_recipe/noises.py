"""Coughs, throat clearing, breaths and laughs without a person: synthesised from noise and pulses.

Each is drawn from its seed. They stand for sounds of which no recording under a free licence is at hand;
people's laughs and coughs (`people.py`) count apart.
"""

from __future__ import annotations

import numpy as np
from scipy.signal import lfilter

RATE = 16_000
KINDS = ("cough", "throat", "breath", "laugh")


def _resonant(sound: np.ndarray, hertz: float, width: float) -> np.ndarray:
    """Through a resonance at `hertz` of this width."""
    radius = np.exp(-np.pi * width / RATE)
    return lfilter([1.0 - radius], [1.0, -2.0 * radius * np.cos(2.0 * np.pi * hertz / RATE), radius**2], sound)


def _formants(sound: np.ndarray, random: np.random.Generator, open_: float) -> np.ndarray:
    """Through the formants of a tract of random length, `open_` 0 to 1."""
    length = random.uniform(0.85, 1.2)
    places = (350.0 + 500.0 * open_, 1_200.0 + random.uniform(-200.0, 300.0), 2_500.0 + random.uniform(-200.0, 300.0))
    parts = [_resonant(sound, place * length, 90.0 + 60.0 * at) for at, place in enumerate(places)]
    return sum(part * gain for part, gain in zip(parts, (1.0, 0.6, 0.3), strict=True))


def _pulses(random: np.random.Generator, samples: int, begin: float, end: float, jitter: float) -> np.ndarray:
    """Pulses of a voice whose pitch goes from `begin` to `end`."""
    pitch = np.linspace(begin, end, samples) * (
        1.0 + jitter * lfilter([0.02], [1.0, -0.98], random.normal(size=samples))
    )
    phase = np.cumsum(pitch / RATE)
    wraps = np.diff(np.floor(phase), prepend=0.0) > 0
    return lfilter([1.0], [1.0, -0.95], wraps.astype(np.float64)) - 0.05


def _envelope(samples: int, attack: float, decay: float) -> np.ndarray:
    """Rises within `attack` seconds and falls by a factor of e in `decay` seconds."""
    at = np.arange(samples) / RATE
    return np.minimum(at / attack, 1.0) * np.exp(-np.maximum(at - attack, 0.0) / decay)


def _cough(random: np.random.Generator) -> np.ndarray:
    """A burst, a hissing middle, and sometimes a voiced end; often twice."""
    parts = []
    for _ in range(random.integers(1, 4)):
        samples = int(random.uniform(0.18, 0.45) * RATE)
        noise = random.normal(size=samples)
        burst = noise * _envelope(samples, random.uniform(0.003, 0.012), random.uniform(0.04, 0.1))
        middle = noise * 0.3 * _envelope(samples, 0.03, random.uniform(0.08, 0.2))
        sound = _formants(burst + middle, random, random.uniform(0.3, 1.0)) + 0.15 * (burst + middle)
        if random.random() < 0.6:
            late = np.roll(_envelope(samples, 0.02, 0.07), samples // 2)
            late[: samples // 2] = 0.0
            pitch = random.uniform(110.0, 320.0)
            sound += 0.8 * _formants(_pulses(random, samples, pitch, pitch * 0.7, 0.3), random, 0.6) * late
        parts += [sound / np.abs(sound).max(), np.zeros(int(random.uniform(0.03, 0.2) * RATE))]
    return np.concatenate(parts[:-1])


def _throat(random: np.random.Generator) -> np.ndarray:
    """Rough pulses of a low pitch beside noise, once or twice."""
    parts = []
    for _ in range(random.integers(1, 3)):
        samples = int(random.uniform(0.2, 0.6) * RATE)
        pitch = random.uniform(45.0, 110.0)
        rough = _pulses(random, samples, pitch, pitch * random.uniform(0.8, 1.3), 1.5)
        sound = _formants(rough + 0.2 * random.normal(size=samples), random, random.uniform(0.0, 0.4))
        sound *= np.sin(np.linspace(0.0, np.pi, samples)) ** 0.5
        parts += [sound / np.abs(sound).max(), np.zeros(int(random.uniform(0.05, 0.2) * RATE))]
    return np.concatenate(parts[:-1])


def _breath(random: np.random.Generator) -> np.ndarray:
    """Noise through an open tract that swells and fades."""
    samples = int(random.uniform(0.3, 1.2) * RATE)
    noise = random.normal(size=samples)
    sound = _formants(noise, random, random.uniform(0.2, 1.0)) + random.uniform(0.02, 0.2) * noise
    return sound * np.sin(np.linspace(0.0, np.pi, samples)) ** random.uniform(0.7, 2.0)


def _laugh(random: np.random.Generator) -> np.ndarray:
    """Short vowels behind breaths, in a rhythm, falling in pitch."""
    pitch, period = random.uniform(130.0, 420.0), random.uniform(0.14, 0.25)
    parts, openness = [], random.uniform(0.2, 1.0)
    for at in range(random.integers(3, 9)):
        samples = int(period * random.uniform(0.9, 1.1) * RATE)
        breath = int(samples * random.uniform(0.25, 0.45))
        voice = _pulses(random, samples - breath, pitch, pitch * random.uniform(0.75, 1.0), 0.2)
        voice = _formants(voice, random, openness) * np.sin(np.linspace(0.0, np.pi, samples - breath)) ** 0.6
        hiss = _formants(random.normal(size=breath), random, openness) * np.sin(np.linspace(0.1, np.pi, breath))
        gain = 0.93**at
        parts += [hiss / np.abs(hiss).max() * 0.25 * gain, voice / np.abs(voice).max() * gain]
        pitch *= random.uniform(0.92, 1.02)
    return np.concatenate(parts)


def noise(kind: str, seed: int) -> np.ndarray:
    """A sound of `kind`, f32 at `RATE` with a peak of .6."""
    random = np.random.default_rng([KINDS.index(kind), seed])
    sound = {"cough": _cough, "throat": _throat, "breath": _breath, "laugh": _laugh}[kind](random)
    return (sound * (0.6 / np.abs(sound).max())).astype(np.float32)
