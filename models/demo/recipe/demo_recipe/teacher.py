"""Step `targets`: what the codec learns to reproduce.

`natural`: the teacher's own waveform. Its phase and noise follow from nothing that a code could say, so a decoder needs
adversarial losses to sound like it: a GPU's work.

`locked`: the same speech from WORLD's analysis, which is told the teacher's own pitch and voicing, with an excitation
that is the same in every codec frame but for its number of pitch periods: pulses start at the frame's first sample and
noise is one frozen frame of it. The waveform becomes a function of the codes, so plain regression on complex spectra
learns it in hours on a processor. The price is a melody in steps of 12.5 Hz.
"""

from __future__ import annotations

from multiprocessing import get_context
from pathlib import Path

import numpy as np

from .config import FRAME, SAMPLE_RATE
from .kokoro import Melody
from .progress import Progress
from .scale import Scale

HOP = 120  # samples between analyses: 5 ms
PER_FRAME = FRAME // HOP
FFT = 1024
LEVEL = 0.8  # of the teacher's peak, so that pulses do not clip
PITCH_BOOK = 3  # of the codes: pitch periods
LOWEST = 70.0  # Hz, of a voice where it begins and ends


def mel_filters(fft: int, mels: int) -> np.ndarray:
    """Triangular filters on the mel scale, `[mels, fft / 2 + 1]`."""
    hertz = np.linspace(0, SAMPLE_RATE / 2, fft // 2 + 1)
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + SAMPLE_RATE / 1400), mels + 2) / 2595) - 1)
    low, centre, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    return np.maximum(0, np.minimum((hertz - low) / (centre - low), (high - hertz) / (high - centre)))


def locked(samples: np.ndarray, pitch: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Speech with a locked excitation, f32 `[n]`.

    `samples`: i16, a whole number of frames. `pitch`: the teacher's own, in Hz, evenly spaced over the same time; low
    where nothing is voiced. `counts`: pitch periods of each frame. The only randomness is the frozen noise.
    """
    import pyworld  # built from source where it is installed; natural targets do without

    sound = samples.astype(np.float64) / 32768 * LEVEL
    pitch = at_analyses(pitch, len(sound) // HOP)
    times = np.arange(len(pitch)) * HOP / SAMPLE_RATE
    power = pyworld.cheaptrick(sound, pitch, times, SAMPLE_RATE, fft_size=FFT)
    breath = np.clip(pyworld.d4c(sound, pitch, times, SAMPLE_RATE, fft_size=FFT), 1e-3, 1)
    breath[pitch <= 0] = 1
    wave = pulses(pitch, power, breath, counts) + noise(power, breath, len(pitch))
    return wave[: len(sound)].astype(np.float32)


def natural(samples: np.ndarray) -> np.ndarray:
    """Speech as it is, f32 `[n]`."""
    return samples.astype(np.float32) / 32768 * LEVEL


def at_analyses(pitch: np.ndarray, count: int) -> np.ndarray:
    """Pitch in Hz at the middle of each analysis, 0 where the nearest value is unvoiced."""
    given = (np.arange(len(pitch)) + 0.5) / len(pitch)
    wanted = (np.arange(count) + 0.5) / count
    nearest = pitch[(wanted * len(pitch)).astype(int)]
    return np.where(nearest > Melody.VOICED, np.maximum(np.interp(wanted, given, pitch), LOWEST), 0.0)


def pulses(pitch: np.ndarray, power: np.ndarray, breath: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The voiced part: minimum-phase responses at evenly spaced points of each frame."""
    at = np.concatenate([k * FRAME + np.round(np.arange(n) * FRAME / n).astype(int) for k, n in enumerate(counts)])
    strength = np.concatenate([np.full(n, np.sqrt(FRAME / n)) for n in counts])
    analysis = np.minimum(np.round(at / HOP).astype(int), len(pitch) - 1)
    voiced = pitch[analysis] > 0
    at, strength, analysis = at[voiced], strength[voiced], analysis[voiced]
    out = np.zeros(len(counts) * FRAME + FFT)
    responses = minimum_phase(np.sqrt(power[analysis] * (1 - breath[analysis] ** 2))) * strength[:, None]
    for start, response in zip(at, responses, strict=True):
        out[start : start + FFT] += response
    return out[: len(counts) * FRAME]


def minimum_phase(magnitude: np.ndarray) -> np.ndarray:
    """Impulse responses with these magnitudes, by the folded cepstrum."""
    cepstrum = np.fft.irfft(np.log(np.maximum(magnitude, 1e-7)))
    cepstrum[..., 1 : FFT // 2] *= 2
    cepstrum[..., FFT // 2 + 1 :] = 0
    return np.fft.irfft(np.exp(np.fft.rfft(cepstrum)))


def noise(power: np.ndarray, breath: np.ndarray, count: int) -> np.ndarray:
    """The breath: one frame of white noise over and over, shaped every 5 ms."""
    frozen = np.random.default_rng(1).standard_normal(FRAME)
    excitation = np.tile(frozen, count // PER_FRAME + 2)
    window = np.hanning(2 * HOP + 1)[:-1]
    out = np.zeros(count * HOP + HOP + FFT)
    # Grain k is centred at k * HOP.
    grains = np.stack([excitation[FRAME + (k - 1) * HOP :][: 2 * HOP] for k in range(count)]) * window
    shaped = np.fft.irfft(np.fft.rfft(grains, FFT) * np.sqrt(power[:count]) * breath[:count])
    for k, grain in enumerate(shaped):
        out[k * HOP : k * HOP + FFT] += grain
    return out[HOP : HOP + count * HOP]


def make(work: Path, scale: Scale) -> None:
    """Writes `targets/NNNNN.npz` for each shard of answers: `wave` f16, `frames`."""
    folder = work / "targets"
    folder.mkdir(parents=True, exist_ok=True)
    shards = sorted((work / "answers").glob("?????.npz"))
    missing = [p for p in shards if not (folder / p.name).exists()]
    progress = Progress("targets", len(shards), done=len(shards) - len(missing))
    with get_context("spawn").Pool(scale.processes) as pool:
        for _ in pool.imap_unordered(_analyse, [(path, scale.teacher) for path in missing]):
            progress.step()


def _analyse(task: tuple[Path, str]) -> None:
    shard, teacher = task
    kept = np.load(shard)
    made, end = [], 0
    for frames in kept["frames"]:
        start, end = end, end + int(frames)
        samples = kept["samples"][start * FRAME : end * FRAME]
        if teacher == "natural":
            made.append(natural(samples))
        else:
            made.append(locked(samples, kept["pitch"][start:end].reshape(-1), kept["codes"][start:end, PITCH_BOOK]))
    path = shard.parent.parent / "targets" / shard.name
    part = path.with_suffix(".part.npz")
    np.savez(part, wave=np.concatenate(made).astype(np.float16), frames=kept["frames"])
    part.rename(path)
