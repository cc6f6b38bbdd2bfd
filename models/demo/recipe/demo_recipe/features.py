"""The log-mel spectrogram that the audio tower sees, as the engine computes it while a caller still speaks.

The reference clamps a spectrogram to 8 powers of ten below the maximum of the whole turn. A stream does not know the
whole: frames leave in windows of `n_window_infer` (100 frames, a second), and each is clamped to 8 below the maximum of
the turn up to that window's end. Training on this keeps the model from being surprised when it is served. For a turn of
one window the two are the same.

Checked against the engine's own fixture (`engine/tests/data/log_mel.safetensors`, made from the reference's filters and
transform) by `tests/test_features.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor
from transformers.audio_utils import hertz_to_mel, mel_filter_bank, mel_to_hertz

CPU = torch.device("cpu")
RATE = 16_000
HOP = 160
LENGTH = 400  # samples that a frame sees
BINS = 128
WINDOW = 100  # frames of an attention window and of a convolution chunk of the audio tower
WINDOW_TOKENS = 13  # audio tokens of a full window
SILENCE = -10.0  # log10 of the power below which everything is the same
RANGE = 8.0


@dataclass
class Windows:
    """The windows of several turns, one turn after the other."""

    mel: torch.Tensor  # [windows, WINDOW, BINS]; zero after a window's last frame
    frames: torch.Tensor  # [windows], at least 1
    turn: torch.Tensor  # [windows]: whose it is
    first: torch.Tensor  # [windows]: whether it is its turn's first

    def to(self, device: torch.device) -> Windows:
        return Windows(*(part.to(device, non_blocking=True) for part in vars(self).values()))

    def tokens(self) -> torch.Tensor:
        """Audio tokens of each window."""
        return tokens(self.frames)


@cache
def _tables(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Periodic Hann window and `[frequencies, BINS]` filters."""
    bank = mel_filter_bank(LENGTH // 2 + 1, BINS, 0.0, 8000.0, RATE, norm="slaney", mel_scale="slaney")
    return torch.hann_window(LENGTH, device=device), torch.tensor(bank, dtype=torch.float32, device=device)


def bins_hertz() -> torch.Tensor:
    """The frequency at which each bin's filter is highest, `[BINS]`."""
    mels = np.linspace(0.0, hertz_to_mel(RATE / 2, "slaney"), BINS + 2)[1:-1]
    return torch.tensor(mel_to_hertz(mels, "slaney"), dtype=torch.float32)


def at_hertz(hertz: torch.Tensor) -> torch.Tensor:
    """The place among the bins, as a fraction: the inverse of `bins_hertz`."""
    mels = hertz_to_mel(hertz.numpy().astype(np.float64), "slaney")
    return torch.tensor(mels / hertz_to_mel(RATE / 2, "slaney") * (BINS + 1) - 1.0, dtype=torch.float32)


def tokens(frames: Tensor) -> Tensor:
    """Audio tokens of so many frames: three halvings, and 13 for each full window. Works on integers and on tensors."""
    rest = frames % WINDOW
    for _ in range(3):
        rest = (rest + 1) // 2
    return frames // WINDOW * WINDOW_TOKENS + rest


def mirrored(sound: np.ndarray) -> np.ndarray:
    """A turn continued at both ends by its mirror image, as its first and last frames see it. f32."""
    if len(sound) <= LENGTH // 2:
        sound = np.pad(sound, (0, LENGTH // 2 + 1 - len(sound)))
    return np.pad(sound, LENGTH // 2, mode="reflect")


def log_mel(sounds: list[np.ndarray], device: torch.device = CPU, window: int = WINDOW) -> Windows:
    """Windows of turns, each f32 in -1..1 at 16 kHz and at least one hop long."""
    hann, filters = _tables(device)
    counts = torch.tensor([len(sound) // HOP for sound in sounds])
    # All turns end to end; a frame is where it starts in there.
    joined = [mirrored(sound) for sound in sounds]
    starts = np.cumsum([0] + [len(one) for one in joined[:-1]])
    at = torch.tensor(
        np.concatenate([start + HOP * np.arange(count) for start, count in zip(starts, counts.tolist(), strict=True)]),
        device=device,
    )
    signal = torch.from_numpy(np.concatenate(joined)).to(device)
    framed = signal.unfold(0, LENGTH, 1)[at]
    power = torch.fft.rfft(framed * hann).abs().square()
    level = (power @ filters).clamp(min=10.0**SILENCE).log10()

    # [turns, windows of the longest, window, BINS], silent where a turn has no frame.
    longest = int((counts.max() + window - 1) // window)
    present = (torch.arange(longest * window)[None] < counts[:, None]).to(device)
    padded = level.new_full((len(sounds), longest * window, BINS), SILENCE)
    padded[present] = level
    padded = padded.view(len(sounds), longest, window, BINS)
    maximum = padded.amax((2, 3)).cummax(1).values
    scaled = (torch.maximum(padded, (maximum - RANGE)[:, :, None, None]) + 4.0) / 4.0
    present = present.view(len(sounds), longest, window)
    scaled = scaled * present[..., None]

    frames = present.sum(2)
    kept = frames > 0
    turn, index = kept.nonzero(as_tuple=True)
    return Windows(scaled[kept], frames[kept], turn, index == 0)
