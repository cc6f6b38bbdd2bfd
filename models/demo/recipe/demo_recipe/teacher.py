"""Step `targets`: what the codec learns to reproduce, and the features by which its encoder knows it.

`natural`: the teacher's own waveform, known by its log-mel. Its phase and noise follow from nothing that a code could say, so a
decoder needs adversarial losses to sound like it: a GPU's work.

`locked`: the same speech from WORLD's analysis, with an excitation that is the same in every codec frame but for its number of pitch
periods: pulses start at the frame's first sample and noise is one frozen frame of it. The waveform becomes a function of
the codes, so plain regression on complex spectra learns it in minutes on a processor. The price is a melody in four steps.
"""

from __future__ import annotations

from multiprocessing import get_context
from pathlib import Path

import numpy as np

from .config import FRAME, SAMPLE_RATE
from .progress import Progress
from .scale import Scale

HOP = 120  # samples between analyses: 5 ms
PER_FRAME = FRAME // HOP
FFT = 1024
MELS = 60
BANDS = 4  # of aperiodicity
FEATURES = MELS + BANDS + 1
PERIODS = (8, 10, 12, 14)  # pitch periods that a frame may hold: 100 to 175 Hz
LEVEL = 0.8  # of the teacher's peak, so that pulses do not clip


def mel_filters(fft: int, mels: int) -> np.ndarray:
    """Triangular filters on the mel scale, `[mels, fft / 2 + 1]`."""
    hertz = np.linspace(0, SAMPLE_RATE / 2, fft // 2 + 1)
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + SAMPLE_RATE / 1400), mels + 2) / 2595) - 1)
    low, centre, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    return np.maximum(0, np.minimum((hertz - low) / (centre - low), (high - hertz) / (high - centre)))


def locked(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Speech with a locked excitation, f32 `[n]`, and its features, f16 `[n / HOP, FEATURES]`.

    `samples`: i16, a whole number of frames. The only randomness is the frozen noise.
    """
    import pyworld  # built from source where it is installed; natural targets do without

    sound = samples.astype(np.float64) / 32768 * LEVEL
    pitch, times = pyworld.dio(sound, SAMPLE_RATE, f0_floor=60, f0_ceil=300, frame_period=1000 * HOP / SAMPLE_RATE)
    pitch = pyworld.stonemask(sound, pitch, times, SAMPLE_RATE)
    power = pyworld.cheaptrick(sound, pitch, times, SAMPLE_RATE, fft_size=FFT)
    breath = np.clip(pyworld.d4c(sound, pitch, times, SAMPLE_RATE, fft_size=FFT), 1e-3, 1)
    breath[pitch <= 0] = 1
    count = len(sound) // HOP
    counts = periods_of_frames(pitch[:count].reshape(-1, PER_FRAME))

    wave = pulses(pitch, power, breath, counts) + noise(power, breath, count)
    filters = mel_filters(FFT, MELS)
    envelope = np.log(power[:count] @ filters.T / filters.sum(1) + 1e-9)
    edges = np.array([40, 80, 140, 240, FFT // 2 + 1])
    bands = np.stack([breath[:count, a:b].mean(1) for a, b in zip(edges[:-1], edges[1:])], 1)
    melody = np.repeat((counts - 11) / 3, PER_FRAME) * (pitch[:count] > 0)
    features = np.concatenate([(envelope + 12) / 4, bands * 2 - 1, melody[:, None]], 1)
    return wave[: len(sound)].astype(np.float32), features.astype(np.float16)


def natural(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Speech as it is, f32 `[n]`, and its features, f16 `[n / HOP, FEATURES]`."""
    wave = samples.astype(np.float32) / 32768 * LEVEL
    count = len(wave) // HOP
    padded = np.pad(wave, FFT // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, FFT)[::HOP][:count]
    magnitude = np.abs(np.fft.rfft(frames * np.hanning(FFT + 1)[:-1]))
    mel = np.log(magnitude @ mel_filters(FFT, FEATURES).T + 1e-3)
    return wave, ((mel + 2) / 3).astype(np.float16)


def periods_of_frames(pitch: np.ndarray) -> np.ndarray:
    """How many pitch periods each frame holds: the allowed number nearest to its median pitch; unvoiced frames go on as before."""
    allowed = np.array(PERIODS)
    now, chosen = allowed[len(allowed) // 2], []
    for frame in pitch:
        voiced = frame[frame > 0]
        if len(voiced) > 2:
            now = allowed[np.abs(allowed - np.median(voiced) * FRAME / SAMPLE_RATE).argmin()]
        chosen.append(now)
    return np.array(chosen)


def pulses(pitch: np.ndarray, power: np.ndarray, breath: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The voiced part: minimum-phase responses at evenly spaced points of each frame."""
    at = np.concatenate([k * FRAME + np.round(np.arange(n) * FRAME / n).astype(int) for k, n in enumerate(counts)])
    strength = np.concatenate([np.full(n, np.sqrt(FRAME / n)) for n in counts])
    analysis = np.minimum(np.round(at / HOP).astype(int), len(pitch) - 1)
    voiced = pitch[analysis] > 0
    at, strength, analysis = at[voiced], strength[voiced], analysis[voiced]
    out = np.zeros(len(counts) * FRAME + FFT)
    responses = minimum_phase(np.sqrt(power[analysis] * (1 - breath[analysis] ** 2))) * strength[:, None]
    for start, response in zip(at, responses):
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
    """Writes `targets/NNNNN.npz` for each shard of answers: `wave` f16, `features` f16, `frames`."""
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
    analyse = {"locked": locked, "natural": natural}[teacher]
    kept = np.load(shard)
    ends = np.cumsum(kept["frames"]) * FRAME
    made = [analyse(kept["samples"][e - n * FRAME : e]) for e, n in zip(ends, kept["frames"])]
    path = shard.parent.parent / "targets" / shard.name
    part = path.with_suffix(".part.npz")
    np.savez(
        part,
        wave=np.concatenate([w for w, _ in made]).astype(np.float16),
        features=np.concatenate([f for _, f in made]),
        frames=kept["frames"],
    )
    part.rename(path)
