"""Two families of critics for natural speech: waveforms folded at prime periods (HiFi-GAN) and spectra (UnivNet)."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

SLOPE = 0.1


class PeriodCritic(nn.Module):
    """Sees every `period`-th sample as a row."""

    def __init__(self, period: int) -> None:
        super().__init__()
        self.period = period
        widths = (1, 32, 64, 128, 256)
        self.layers = nn.ModuleList(
            weight_norm(nn.Conv2d(a, b, (5, 1), (3, 1), (2, 0))) for a, b in itertools.pairwise(widths)
        )
        self.judge = weight_norm(nn.Conv2d(widths[-1], 1, (3, 1), padding=(1, 0)))

    def forward(self, samples: Tensor) -> tuple[Tensor, list[Tensor]]:
        samples = F.pad(samples, (0, -samples.shape[1] % self.period))
        return _judge(self, samples.view(len(samples), 1, -1, self.period))


class SpectrumCritic(nn.Module):
    """Sees a magnitude spectrogram."""

    def __init__(self, fft: int) -> None:
        super().__init__()
        self.fft = fft
        self.register_buffer("window", torch.hann_window(fft))
        widths = (1, 32, 32, 64, 64)
        self.layers = nn.ModuleList(
            weight_norm(nn.Conv2d(a, b, (9, 3), (2, 1) if k else 1, (4, 1)))
            for k, (a, b) in enumerate(itertools.pairwise(widths))
        )
        self.judge = weight_norm(nn.Conv2d(widths[-1], 1, 3, padding=1))

    def forward(self, samples: Tensor) -> tuple[Tensor, list[Tensor]]:
        spectrum = torch.stft(samples, self.fft, self.fft // 4, window=self.window, return_complex=True)
        magnitude = torch.view_as_real(spectrum).square().sum(-1).add(1e-9).sqrt()
        return _judge(self, magnitude[:, None])


def _judge(critic: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    seen = []
    for layer in critic.layers:
        x = F.leaky_relu(layer(x), SLOPE)
        seen.append(x)
    return critic.judge(x), seen


class Discriminators(nn.Module):
    """All critics, with the least-squares losses of both sides."""

    def __init__(self) -> None:
        super().__init__()
        self.critics = nn.ModuleList(
            [PeriodCritic(p) for p in (2, 3, 5, 7, 11)] + [SpectrumCritic(n) for n in (512, 1024, 2048)]
        )

    def loss(self, real: Tensor, fake: Tensor) -> Tensor:
        """The critics' own: real is one, made is zero."""
        return sum(
            (critic(real)[0] - 1).square().mean() + critic(fake)[0].square().mean() for critic in self.critics
        ) / len(self.critics)

    def against(self, real: Tensor, fake: Tensor) -> tuple[Tensor, Tensor]:
        """The decoder's: to be taken for real, and to look to the critics as the real one does."""
        fooled, matched = fake.new_zeros(()), fake.new_zeros(())
        for critic in self.critics:
            with torch.no_grad():
                _, wanted = critic(real)
            verdict, seen = critic(fake)
            fooled = fooled + (verdict - 1).square().mean()
            matched = matched + sum(F.l1_loss(a, b) for a, b in zip(seen, wanted, strict=True)) / len(wanted)
        return fooled / len(self.critics), matched / len(self.critics)
