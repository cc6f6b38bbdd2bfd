"""Makes the fixture of a voice cloned by CosyVoice3: `python make_voice.py`, with the packages of make_encoders.py.

A recording at 24 kHz and what the reference's `frontend_zero_shot` makes of it, with the small encoders of
make_encoders.py: the recording at 16 kHz by the formula of torchaudio's `resample`, spectrograms by those of whisper,
Kaldi and Matcha-TTS, and the codes and the speaker's vector by onnxruntime.
"""

import importlib.metadata
import json
import math
import tempfile
from pathlib import Path

import numpy as np
from make_encoders import FIXTURES, SPEAKER, SPEECH, kaldi, speaker, speech
from safetensors.numpy import save_file

FOLDER = FIXTURES / "cosyvoice3_voice"
RATE, HEARD = 24_000, 16_000
SAMPLES = 58_500
BINS = 20
N_FFT, HOP = 1920, 480
# Least distance of a number from the middle between two levels.
MARGIN = 2e-4


def recording() -> np.ndarray:
    """Harmonics of a pitch that moves, in syllables, with some noise, on the 16-bit grid."""
    rng = np.random.default_rng(12)
    time = np.arange(SAMPLES) / RATE
    pitch = 140 + 40 * np.sin(2 * np.pi * 0.7 * time)
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    voiced = sum(np.sin(n * phase) / n * (1 + 0.5 * np.sin(2 * np.pi * n * 0.31 * time)) for n in range(1, 30))
    syllables = 0.25 + 0.75 * np.clip(np.sin(2 * np.pi * 3.3 * time), 0, 1)
    sound = 0.15 * syllables * voiced + 0.02 * rng.standard_normal(SAMPLES)
    return (np.round(np.clip(sound, -1, 1) * 32768) / 32768).astype(np.float32)


def resample(samples: np.ndarray) -> np.ndarray:
    """`sinc_interp_hann` with six zero crossings and a roll-off of 0.99: a kernel for each phase of the output."""
    common = math.gcd(RATE, HEARD)
    old, new = RATE // common, HEARD // common
    base = min(old, new) * 0.99
    width = math.ceil(6 * old / base)
    time = (np.arange(-width, width + old)[None] / old - np.arange(new)[:, None] / new) * base
    time = time.clip(-6, 6)
    window = np.cos(time * np.pi / 12) ** 2
    kernels = np.sinc(time) * window * base / old
    padded = np.pad(samples.astype(np.float64), (width, width + old))
    frames = np.lib.stride_tricks.sliding_window_view(padded, 2 * width + old)[::old]
    made = (frames @ kernels.T).reshape(-1)
    return made[: math.ceil(new * len(samples) / old)].astype(np.float32)


def filters(rate: int, n_fft: int, bins: int) -> np.ndarray:
    """Slaney's triangles of equal area up to half the rate, `[bins, frequencies]`."""
    step, knee, log_step = 200 / 3, 15.0, np.log(6.4) / 27

    def mel(hertz: float) -> float:
        return hertz / step if hertz < 1000 else knee + np.log(hertz / 1000) / log_step

    places = np.linspace(0, mel(rate / 2), bins + 2)
    edges = np.where(places < knee, places * step, 1000 * np.exp(log_step * (places - knee)))
    hertz = np.linspace(0, rate / 2, n_fft // 2 + 1)
    rise = (hertz[None] - edges[:-2, None]) / np.diff(edges)[:-1, None]
    fall = (edges[2:, None] - hertz[None]) / np.diff(edges)[1:, None]
    return np.maximum(0, np.minimum(rise, fall)) * (2 / (edges[2:] - edges[:-2]))[:, None]


def spectra(samples: np.ndarray, n_fft: int, hop: int) -> np.ndarray:
    """Spectra of whole frames under a periodic Hann window, `[frames, frequencies]`."""
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n_fft) / n_fft)
    frames = np.lib.stride_tricks.sliding_window_view(samples.astype(np.float64), n_fft)[::hop]
    return np.fft.rfft(frames * window)


def whisper(samples: np.ndarray, bins: int) -> np.ndarray:
    """`log_mel_spectrogram`, `[frames, bins]`."""
    power = np.abs(spectra(np.pad(samples, 200, mode="reflect"), 400, 160)[:-1]) ** 2
    levels = np.log10(np.maximum(power @ filters(HEARD, 400, bins).T, 1e-10))
    return ((np.maximum(levels, levels.max() - 8) + 4) / 4).astype(np.float32)


def matcha(samples: np.ndarray) -> np.ndarray:
    """`mel_spectrogram`, `[frames, bins]`."""
    ends = (N_FFT - HOP) // 2
    magnitudes = np.sqrt(np.abs(spectra(np.pad(samples, ends, mode="reflect"), N_FFT, HOP)) ** 2 + 1e-9)
    return np.log(np.maximum(magnitudes @ filters(RATE, N_FFT, BINS).T, 1e-5)).astype(np.float32)


def main() -> None:
    """Makes the fixture."""
    samples = recording()
    heard = resample(samples)
    levels = kaldi(heard, SPEAKER["bins"])
    levels = levels - levels.mean(0, keepdims=True)
    with tempfile.TemporaryDirectory() as folder:
        _, codes = speech(whisper(heard, SPEECH["bins"]), Path(folder), MARGIN)
        vector = speaker(levels.astype(np.float32), Path(folder))
    frames = matcha(samples)
    kept = min(len(frames) // 2, len(codes))
    tensors = {
        "samples": samples,
        "heard": heard,
        "codes": codes[:kept],
        "mel": frames[: 2 * kept],
        "speaker": vector,
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    save_file({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, FOLDER / "expected.safetensors")
    packages = ("numpy", "onnx", "onnxruntime", "kaldi-native-fbank")
    facts = {
        "versions": {name: importlib.metadata.version(name) for name in packages},
        "oracle": "the reference's formulas in numpy, and onnxruntime on the same weights",
        "codes": {"all": len(codes), "kept": kept, "different": len(set(codes.tolist()))},
        "frames": len(frames),
    }
    (FOLDER / "expected.json").write_text(json.dumps(facts, indent=2) + "\n")
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
