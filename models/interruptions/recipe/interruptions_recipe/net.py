"""The network: three frames at a time, a recurrent layer, and the likelihoods after each frame."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .features import BANDS

KERNEL = 3
WIDTH = 96
STATE = 160
KINDS = ("interruption", "backchannel", "neither")


class InterruptionNet(nn.Module):
    """`[batch, frames, BANDS]` to the logits of `KINDS` after each frame, `[batch, frames, 3]`."""

    def __init__(self, words: int = 0) -> None:
        """`words`: those that training tells apart; the exported network does not name them."""
        super().__init__()
        self.frames = nn.Linear(KERNEL * BANDS, WIDTH)
        self.recurrent = nn.GRU(WIDTH, STATE, batch_first=True)
        self.out = nn.Linear(STATE, len(KINDS))
        self.words = nn.Linear(STATE, words) if words else None
        self.drop = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.states(x))

    def states(self, x: Tensor) -> Tensor:
        """States after each frame, `[batch, frames, STATE]`."""
        # Before the first frame there is silence.
        windows = F.pad(x, (0, 0, KERNEL - 1, 0), value=-1.0).unfold(1, KERNEL, 1)
        x = F.relu(self.frames(windows.transpose(2, 3).flatten(2)))
        x, _ = self.recurrent(self.drop(x))
        return self.drop(x)

    def weights(self) -> list[Tensor]:
        """The weights in the order of the exported file."""
        r = self.recurrent
        return [
            self.frames.weight, self.frames.bias, r.weight_ih_l0, r.weight_hh_l0, r.bias_ih_l0, r.bias_hh_l0,
            self.out.weight, self.out.bias,
        ]  # fmt: skip


def likelihoods(net: InterruptionNet, x: Tensor) -> Tensor:
    """Probabilities of `KINDS` after each frame."""
    with torch.no_grad():
        return net(x).softmax(-1)
