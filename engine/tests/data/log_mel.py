"""Writes log_mel.safetensors: expectations for the streaming log-mel, from the reference feature extractor.

pip install numpy==2.* safetensors torch transformers==5.23.0
python engine/tests/data/log_mel.py
"""

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from transformers import WhisperFeatureExtractor
from transformers.audio_utils import spectrogram, window_function

RATE, HOP, N_FFT, BINS = 16_000, 160, 400, 128
SAMPLES, WINDOW_FRAMES = 12_123, 20
LENGTHS = [160, 200, 201, 399, 3_999, 4_000, SAMPLES]

extractor = WhisperFeatureExtractor(feature_size=BINS)


def signal() -> np.ndarray:
    """A chirp over noise that grows by 40 dB, so that the maximum rises from window to window."""
    time = np.arange(SAMPLES) / RATE
    loudness = 10 ** (-2.5 + 2 * time / time[-1])
    chirp = np.sin(2 * np.pi * (120 * time + 2500 * time**2))
    noise = np.random.default_rng(7).standard_normal(SAMPLES)
    return (loudness * (chirp + 0.05 * noise)).astype(np.float32)


def contiguous(frames: np.ndarray) -> np.ndarray:
    """safetensors writes memory as it lies, whatever the strides."""
    return np.ascontiguousarray(frames.astype(np.float32))


def whole(samples: np.ndarray) -> np.ndarray:
    """One spectrogram of everything; [frames, bins]. Short sounds are continued with silence so that they reflect."""
    frames = len(samples) // HOP
    samples = np.pad(samples, (0, max(0, N_FFT // 2 + 1 - len(samples))))
    features = extractor(samples, sampling_rate=RATE, padding=False, return_tensors="np").input_features[0]
    return contiguous(features.T[:frames])


def streamed(samples: np.ndarray) -> np.ndarray:
    """Windows clamped against the maximum so far."""
    levels = spectrogram(
        samples,
        window_function(N_FFT, "hann"),
        frame_length=N_FFT,
        hop_length=HOP,
        power=2.0,
        mel_filters=extractor.mel_filters,
        log_mel="log10",
    ).T[:-1]
    out = []
    for start in range(0, len(levels), WINDOW_FRAMES):
        window = levels[start : start + WINDOW_FRAMES]
        out.append((np.maximum(window, levels[: start + WINDOW_FRAMES].max() - 8.0) + 4.0) / 4.0)
    return contiguous(np.concatenate(out))


samples = signal()
tensors = {f"whole.{length}": whole(samples[:length]) for length in LENGTHS}
tensors |= {"signal": samples, f"streamed.{WINDOW_FRAMES}": streamed(samples)}
save_file(tensors, Path(__file__).with_suffix(".safetensors"))
for name, tensor in tensors.items():
    print(name, tensor.shape, float(tensor.std()))
