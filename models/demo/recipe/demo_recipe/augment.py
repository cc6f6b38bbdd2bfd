"""Changes of a voice between a mouth and the gateway: speed, colour, room, noise, telephone, level, silence around it.

Made for speed, since it runs for every turn of every step: everything linear is one multiplication in the frequency
domain, noise is cut from pools made once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.fft

RATE = 16_000
POOL = 60 * RATE  # samples of each kind of noise


def pink(random: np.random.Generator, samples: int) -> np.ndarray:
    """Noise whose power falls by 3 dB an octave, of power 1."""
    spectrum = scipy.fft.rfft(random.standard_normal(samples, np.float32))
    spectrum /= np.sqrt(np.maximum(np.arange(len(spectrum)), 20.0)).astype(np.float32)
    return _unit(scipy.fft.irfft(spectrum, samples))


def babble(random: np.random.Generator, voices: Sequence[np.ndarray], samples: int) -> np.ndarray:
    """Six people who talk at once, without pauses, of power 1."""
    mixed = np.zeros(samples, np.float32)
    for _ in range(6):
        at = 0
        while at < samples:
            voice = voices[random.integers(len(voices))][: samples - at].astype(np.float32)
            mixed[at : at + len(voice)] += voice * (random.uniform(0.3, 1.0) / (np.abs(voice).max() + 1.0))
            at += len(voice)
    return _unit(mixed)


def _unit(sound: np.ndarray) -> np.ndarray:
    return (sound / np.sqrt(np.mean(np.square(sound)) + 1e-20)).astype(np.float32)


def dull(sound: np.ndarray, hertz: float) -> np.ndarray:
    """Without what is above `hertz`, as old synthesisers, microphones and cheap coders have it."""
    length = scipy.fft.next_fast_len(len(sound), real=True)
    place = np.linspace(0.0, RATE / 2, length // 2 + 1, dtype=np.float32)
    kept = 1.0 / (1.0 + (place / np.float32(hertz)) ** 24)
    return scipy.fft.irfft(scipy.fft.rfft(sound, length) * kept.astype(np.float32), length)[: len(sound)]


def telephone(sound: np.ndarray) -> np.ndarray:
    """Through 300 to 3,400 Hz and 8-bit mu-law."""
    length = scipy.fft.next_fast_len(len(sound), real=True)
    hertz = np.linspace(0.0, RATE / 2, length // 2 + 1, dtype=np.float32)
    band = 1.0 / (1.0 + (300.0 / np.maximum(hertz, 1.0)) ** 8) / (1.0 + (hertz / 3400.0) ** 24)
    narrow = scipy.fft.irfft(scipy.fft.rfft(sound, length) * band.astype(np.float32), length)[: len(sound)]
    loudest = np.abs(narrow).max() + 1e-9
    code = np.round(np.sign(narrow) * np.log1p(255.0 * np.abs(narrow) / loudest) / np.log(256.0) * 127.0) / 127.0
    return (np.sign(code) * (256.0 ** np.abs(code) - 1.0) / 255.0 * loudest).astype(np.float32)


def with_noise(sound: np.ndarray, noise: np.ndarray, decibels: float, speech_power: float) -> np.ndarray:
    """Noise of power 1 added so that speech is so much louder."""
    return sound + noise * np.float32(np.sqrt(speech_power) * 10.0 ** (-decibels / 20.0))


def power(sound: np.ndarray) -> float:
    """Of the parts in which somebody speaks: frames of 20 ms within 30 dB of the loudest."""
    frames = np.square(sound[: len(sound) // 320 * 320].reshape(-1, 320)).mean(1)
    return float(frames[frames > frames.max(initial=0.0) / 1000.0].mean()) if len(frames) else 1e-8


class Augment:
    """Random changes of a caller's sound. `voices` are int16 sounds to make babble of."""

    def __init__(self, random: np.random.Generator, voices: Sequence[np.ndarray]) -> None:
        self.random = random
        self.pools = (_unit(random.standard_normal(POOL, np.float32)), pink(random, POOL), babble(random, voices, POOL))

    def noise(self, samples: int) -> np.ndarray:
        """Some kind of noise, of power 1."""
        pool = self.pools[self.random.integers(len(self.pools))]
        at = self.random.integers(len(pool) - samples + 1) if samples < len(pool) else 0
        return np.resize(pool[at : at + samples], samples)

    def colour_and_room(self, sound: np.ndarray) -> np.ndarray:
        """A smooth equaliser, and in a third of cases a small room."""
        random = self.random
        room = int(random.uniform(800, 4000)) if random.random() < 0.33 else 0
        length = scipy.fft.next_fast_len(len(sound) + room, real=True)
        spectrum = scipy.fft.rfft(sound, length)
        bands = random.normal(0.0, 5.0, 9)
        decibels = np.interp(np.linspace(0.0, 1.0, len(spectrum)) ** 0.5, np.linspace(0.0, 1.0, len(bands)), bands)
        spectrum *= (10.0 ** (decibels / 20.0)).astype(np.float32)
        if room:
            echo = random.standard_normal(room, np.float32) * np.exp(-np.arange(room, dtype=np.float32) / (room / 5))
            echo[0] = random.uniform(4.0, 16.0)
            spectrum *= scipy.fft.rfft(echo / echo[0], length)
        return scipy.fft.irfft(spectrum, length)[: len(sound)]

    def __call__(self, voice: np.ndarray) -> np.ndarray:
        """int16 to f32 in -1..1, another length."""
        random = self.random
        sound = voice.astype(np.float32) / 32768.0
        plain = random.random() < 0.25
        if not plain and random.random() < 0.8:
            samples = int(len(sound) / random.uniform(0.8, 1.25))
            sound = np.interp(np.linspace(0.0, len(sound) - 1.0, samples), np.arange(len(sound)), sound).astype(
                np.float32
            )
        if not plain and random.random() < 0.75:
            sound = self.colour_and_room(sound)
        if not plain and random.random() < 0.2:
            sound = dull(sound, random.uniform(3_400.0, 6_000.0))
        speech = power(sound)
        sound = np.pad(sound, (int(random.uniform(0.0, 0.5) * RATE), int(random.uniform(0.05, 0.8) * RATE)))
        if not plain and random.random() < 0.55:
            sound = with_noise(sound, self.noise(len(sound)), random.uniform(6.0, 40.0), speech)
        elif random.random() < 0.7:  # a microphone's own noise; otherwise digital silence
            sound = with_noise(sound, self.noise(len(sound)), random.uniform(45.0, 65.0), speech)
        if not plain and random.random() < 0.15:
            sound = telephone(sound)
        loudest = np.abs(sound).max() + 1e-9
        return (sound * (10.0 ** random.uniform(-1.4, -0.03) / loudest)).astype(np.float32)
