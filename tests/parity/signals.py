"""Speech-like sounds, and both log-mel front ends: the reference's and the streaming one."""

import numpy as np
import torch
from transformers import WhisperFeatureExtractor

SAMPLE_RATE = 16000
FLOOR = 1e-10


def speech(samples: int, seed: int) -> np.ndarray:
    """A hummed melody in syllables over faint noise, getting louder, so that a running maximum differs from
    the maximum of the whole. Values lie on the 16-bit grid, so that a PCM16 round trip changes nothing."""
    rng = np.random.default_rng(seed)
    t = np.arange(samples) / SAMPLE_RATE
    pitch = 120 + 40 * np.sin(2 * np.pi * (0.7 * t + rng.uniform())) + 15 * np.sin(2 * np.pi * 3.1 * t)
    phase = 2 * np.pi * np.cumsum(pitch) / SAMPLE_RATE
    voice = np.zeros(samples)
    for harmonic in range(1, 20):
        tilt = 1 / harmonic ** rng.uniform(0.7, 1.3)
        slow = 1 + 0.8 * np.sin(2 * np.pi * (rng.uniform(0.5, 2.5) * t + rng.uniform()))
        voice += tilt * slow * np.sin(harmonic * phase + rng.uniform(0, 2 * np.pi))
    syllables = np.clip(np.sin(2 * np.pi * (3.3 * t + rng.uniform())), 0, None) ** 2
    hiss = rng.standard_normal(samples) * np.clip(np.sin(2 * np.pi * (1.9 * t + rng.uniform())), 0, None) ** 4
    rise = 10 ** (2 * np.linspace(-1, 0, samples))
    sound = rise * (voice * syllables + 0.3 * hiss)
    sound = 0.5 * sound / np.abs(sound).max() + 2e-5 * rng.standard_normal(samples)
    return (np.round(sound * 32768) / 32768).astype(np.float32)


def mel_reference(extractor: WhisperFeatureExtractor, audio: np.ndarray) -> torch.Tensor:
    """[bins, frames] as the reference's feature extractor makes it: floor relative to the maximum of the whole."""
    out = extractor(audio, sampling_rate=SAMPLE_RATE, padding=True, truncation=False, return_tensors="pt")
    return out["input_features"][0]


def mel_streaming(extractor: WhisperFeatureExtractor, audio: np.ndarray, window: int) -> torch.Tensor:
    """[bins, frames] as a stream can know it: the floor of each window of `window` frames is relative to the
    maximum over that window and those before it."""
    stft = torch.stft(
        torch.from_numpy(audio),
        extractor.n_fft,
        extractor.hop_length,
        window=torch.hann_window(extractor.n_fft),
        return_complex=True,
    )
    power = (stft[..., :-1].abs() ** 2).contiguous()
    filters = torch.from_numpy(extractor.mel_filters).to(torch.float32)
    log = (filters.T @ power).clamp(min=FLOOR).log10()
    highest, windows = -torch.inf, []
    for part in log.split(window, dim=1):
        highest = max(highest, part.max().item())
        windows.append(part.clamp(min=highest - 8.0))
    return (torch.cat(windows, dim=1) + 4.0) / 4.0
