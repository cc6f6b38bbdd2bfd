"""The network: convolutions from frames of 10 ms to rows of 80 ms, two residual ones, attention that pools the rows,
and a classifier that also sees the last rows.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .features import CHANNELS, FRAMES

WIDTHS = (64, 96, 128)  # of the convolutions, kernel 5, stride 2
KERNEL = 5
RESIDUAL = (5, 3)  # kernels
LAST = 4  # rows that the classifier sees as they are
HIDDEN = 96
ROWS = FRAMES // 2 ** len(WIDTHS)


class Convolution(nn.Module):
    """A convolution over rows `[batch, rows, channels]`: a linear layer over windows, weights `[out, kernel * in]`."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride
        self.linear = nn.Linear(kernel * channels, out)

    def forward(self, x: Tensor) -> Tensor:
        # One row more before than behind where the stride is 2.
        before = self.kernel // 2
        x = F.pad(x, (0, 0, before, self.kernel - 1 - before))
        windows = x.unfold(1, self.kernel, self.stride)  # [batch, rows, channels, kernel]
        return self.linear(windows.transpose(2, 3).flatten(2))


class TurnNet(nn.Module):
    """`[batch, FRAMES, CHANNELS]` to the logit that the turn has ended, `[batch]`."""

    def __init__(self) -> None:
        super().__init__()
        widths = (CHANNELS, *WIDTHS)
        self.down = nn.ModuleList(
            Convolution(width, out, KERNEL, 2) for width, out in zip(widths, WIDTHS, strict=False)
        )
        width = WIDTHS[-1]
        self.position = nn.Parameter(torch.zeros(ROWS, width))
        self.norm = nn.ModuleList(nn.LayerNorm(width) for _ in RESIDUAL)
        self.residual = nn.ModuleList(Convolution(width, width, kernel, 1) for kernel in RESIDUAL)
        self.score = nn.Linear(width, 1)
        self.hidden = nn.Linear(width * (1 + LAST), HIDDEN)
        self.out = nn.Linear(HIDDEN, 1)
        self.drop = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        for convolution in self.down:
            x = F.gelu(convolution(x))
        x = x + self.position
        for norm, convolution in zip(self.norm, self.residual, strict=True):
            x = x + self.drop(F.gelu(convolution(norm(x))))
        shares = self.score(x).softmax(1)
        pooled = (x * shares).sum(1)
        seen = torch.cat([pooled, x[:, -LAST:].flatten(1)], 1)
        return self.out(self.drop(F.gelu(self.hidden(self.drop(seen)))))[:, 0]
