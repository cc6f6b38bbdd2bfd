"""Distances between waveforms as the codec's training sees them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .config import FRAME
from .teacher import mel_filters


class LogMel(nn.Module):
    """Log-mel magnitudes `[batch, mels, frames]` of samples `[batch, n]`."""

    def __init__(self, fft: int, hop: int, mels: int) -> None:
        super().__init__()
        self.fft, self.hop = fft, hop
        self.register_buffer("filters", torch.tensor(mel_filters(fft, mels), dtype=torch.float32))
        self.register_buffer("window", torch.hann_window(fft))

    def forward(self, samples: Tensor) -> Tensor:
        spectrum = torch.stft(samples, self.fft, self.hop, window=self.window, return_complex=True)
        # The square root's slope at zero is infinite.
        magnitude = torch.view_as_real(spectrum).square().sum(-1).add(1e-9).sqrt()
        return torch.log(torch.clamp(self.filters @ magnitude, min=1e-4))


class Envelope(nn.Module):
    """Log-mel power `[batch, mels, frames]` of samples `[batch, n]` over some hundredths of a second: what is said,
    without the fine structure of pulses and noise, which is most of what `LogMel` differs by.
    """

    FAINTEST = 1e-4

    def __init__(self, fft: int, hop: int, mels: int, averaged: int) -> None:
        """`averaged` is how many windows, an odd number."""
        super().__init__()
        self.fft, self.hop, self.averaged = fft, hop, averaged
        self.register_buffer("filters", torch.tensor(mel_filters(fft, mels), dtype=torch.float32))
        self.register_buffer("window", torch.hann_window(fft))

    def forward(self, samples: Tensor) -> Tensor:
        spectrum = torch.stft(samples, self.fft, self.hop, window=self.window, return_complex=True)
        power = self.filters @ torch.view_as_real(spectrum).square().sum(-1)
        return torch.log(F.avg_pool1d(power, self.averaged, self.averaged // 2) + self.FAINTEST)


class Variance(nn.Module):
    """Distance of the variance over time of each cepstral coefficient of log-mel power `[batch, mels, frames]` from its
    target, in nats of its root: the global variance of statistical speech synthesis. What the codes do not tell a
    regression averages out, so that formants get flat; the distance of envelopes alone does not mind that.
    """

    LEAST = 0.05  # nats squared, below which a variance does not count: silence has none

    def __init__(self, mels: int) -> None:
        super().__init__()
        at = torch.arange(mels)
        cosine = torch.cos(math.pi / mels * (at + 0.5) * at[:, None]) * (2 / mels) ** 0.5
        cosine[0] *= 0.5**0.5
        self.register_buffer("cosine", cosine)  # [coefficient, mel], orthonormal

    def forward(self, made: Tensor, wanted: Tensor) -> Tensor:
        got, want = (torch.log((self.cosine @ x).var(-1) + self.LEAST) for x in (made, wanted))
        return F.l1_loss(got, want) / 2


def weighted(distance: Tensor, weight: Tensor, hop: int) -> Tensor:
    """The mean of `distance` `[batch, frames]`, a frame every `hop` samples, in which codec frames count by `weight`
    `[batch, codec frames]`.
    """
    at = (torch.arange(distance.shape[1], device=distance.device) * hop // FRAME).clamp(max=weight.shape[1] - 1)
    return (distance * weight[:, at]).sum() / weight[:, at].sum()


class Distance(nn.Module):
    """Log-mel distance at four resolutions and, apart, the distances of spectral envelopes, of how much these vary, and
    of complex spectra at three resolutions.
    """

    BANDS = ((0.0, 1 / 24), (1 / 24, 1 / 6), (1 / 6, 1 / 2))  # shares of the spectrum that weigh the same

    def __init__(self) -> None:
        super().__init__()
        self.mels = nn.ModuleList(
            [LogMel(2048, 512, 128), LogMel(1024, 256, 80), LogMel(512, 128, 40), LogMel(256, 64, 20)]
        )
        # Over 27 ms, in which no pulse shows, and over 11 ms, in which the burst of a stop is not lost among what is
        # around it.
        self.envelopes = nn.ModuleList([Envelope(512, 128, 40, 5), Envelope(256, 64, 24, 3)])
        self.variance = Variance(40)
        for size in (256, 512, 1024):
            self.register_buffer(f"window{size}", torch.hann_window(size))

    def forward(self, made: Tensor, wanted: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of samples `[batch, n]`; `weight` `[batch, frames]` is that of codec frames in the envelopes' distance."""
        mel = sum(F.l1_loss(m(made), m(wanted)) for m in self.mels)
        envelopes = [(e(made), e(wanted)) for e in self.envelopes]
        apart = [
            weighted((got - want).abs().mean(1), weight, e.hop)
            for (got, want), e in zip(envelopes, self.envelopes, strict=True)
        ]
        envelope = sum(apart) / len(apart)
        variance = self.variance(*envelopes[0])
        wave = made.new_zeros(())
        for size in (256, 512, 1024):
            window = getattr(self, f"window{size}")
            got, want = (
                torch.view_as_real(torch.stft(x, size, size // 4, window=window, return_complex=True))
                for x in (made, wanted)
            )
            for low, high in self.BANDS:
                a, b = int(low * size), max(int(low * size) + 1, int(high * size))
                wave = wave + (got[:, a:b] - want[:, a:b]).abs().mean() / (want[:, a:b].abs().mean() + 1e-3)
        return mel, envelope, variance, wave / 9
