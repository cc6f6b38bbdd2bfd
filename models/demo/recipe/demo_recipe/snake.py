"""The decoder's activation with a backward pass of its own: the composed one spends most of a processor's training time
on copies.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeSnakeBeta

TINY = 1e-9


class _Snake(torch.autograd.Function):
    """x + sin(a x)^2 / b for x `[batch, channels, n]` and log a, log b `[channels]`, in the type of x."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, log_a: Tensor, log_b: Tensor) -> Tensor:
        a = log_a.exp().view(1, -1, 1).to(x.dtype)
        b = (1 / (log_b.exp() + TINY)).view(1, -1, 1).to(x.dtype)
        ctx.save_for_backward(x, a, b)
        return torch.addcmul(x, (x * a).sin_().square_(), b)

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, a, b = ctx.saved_tensors
        angle = x * a
        # d/dx sin(ax)^2 = a sin(2ax); the parameters are logarithms, so their gradients carry a factor a or b.
        double = (angle * 2).sin_()
        log_a = (torch.mul(angle, double).mul_(grad).sum((0, 2), dtype=torch.float32)) * b.float().flatten()
        log_b = -(angle.sin_().square_().mul_(grad).sum((0, 2), dtype=torch.float32)) * b.float().flatten()
        return double.mul_(a * b).add_(1).mul_(grad), log_a, log_b


class Snake(nn.Module):
    """Stands in for the reference, with its parameters under their names."""

    def __init__(self, reference: Qwen3OmniMoeSnakeBeta) -> None:
        super().__init__()
        self.alpha, self.beta = reference.alpha, reference.beta

    def forward(self, x: Tensor) -> Tensor:
        return _Snake.apply(x, self.alpha, self.beta)


def quicken(module: nn.Module) -> None:
    """Puts a `Snake` in the place of each `Qwen3OmniMoeSnakeBeta` within."""
    for name, child in module.named_children():
        if isinstance(child, Qwen3OmniMoeSnakeBeta):
            setattr(module, name, Snake(child))
        else:
            quicken(child)
