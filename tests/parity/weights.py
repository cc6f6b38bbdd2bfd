"""Random weights that hide nothing, and stop rows that end greedy answers by themselves.

A freshly initialised reference is almost silent (ConvNeXt gamma 1e-6, a codec that peaks near 2e-6), so every parameter
is drawn again, at scales at which each block moves its output about as much as its input does.
"""

import numpy as np
import torch
from scipy.optimize import linprog
from torch import nn

# How far, in logits, a stop token stays below the best other token before the stop, and above it at the stop.
STOP_MARGIN = 1.0


def _uniform(p, rng, low, high):
    p.copy_(torch.rand(p.shape, generator=rng) * (high - low) + low)


def _normal(p, rng, std):
    p.copy_(torch.randn(p.shape, generator=rng) * std)


def _matrix_gain(name: str) -> float:
    """Gain over 1/sqrt(inputs) of a matrix, by the origin of its inputs."""
    gains = {
        "lm_head": 3.0,
        "codec_head": 3.0,
        "mlp.gate.weight": 2.0,  # routers: clear choices
        "down_proj": 2.5,  # after silu(gate) * up, of small variance
        "gate_up_proj": 1.2,
        "hidden_projection.linear_fc1": 0.5,  # reads the residual stream as it is, without a norm
        "linear_fc1": 1.3,
        "linear_fc2": 2.0,
        "fc2": 1.5,
        "pwconv2": 1.5,
        "self_attn.q_proj": 1.5,
        "self_attn.k_proj": 1.5,
        "v_proj": 1.3,
        "o_proj": 1.5,  # attention averages
        "out_proj": 1.5,
        "conv2d": 1.6,
        "conv_out": 1.6,
        "proj2": 2.0,
    }
    return next((gain for part, gain in gains.items() if part in name), 1.0)


@torch.no_grad()
def redraw(model: nn.Module, seed: int) -> None:
    """Draws every parameter, in the order of its name."""
    rng = torch.Generator().manual_seed(seed)
    groups = model.config.code2wav_config.num_quantizers
    transposed = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.ConvTranspose1d)}
    for name, p in sorted(model.named_parameters()):
        leaf = name.rsplit(".", 1)[-1]
        if leaf in ("alpha", "beta"):
            _uniform(p, rng, 0.3, 0.8)  # in logarithms, where 0 is what a missing parameter would mean
            signs = torch.where(torch.rand(p.shape, generator=rng) < 0.5, -1.0, 1.0)
            # Low frequencies only: with high ones a deep codec turns rounding errors into differences above 1e-4, the
            # reference's own between single and double precision included.
            p.mul_(-1.0 if leaf == "alpha" else signs)
        elif leaf in ("gamma", "scale"):
            _uniform(p, rng, 0.4, 0.9)
        elif "q_norm" in name or "k_norm" in name:
            _uniform(p, rng, 1.0, 1.8)
        elif name.endswith("q_proj.bias"):
            _normal(p, rng, 0.8)
        elif leaf == "bias":
            _normal(p, rng, 0.3)
        elif p.dim() == 1:
            _uniform(p, rng, 0.6, 1.4)
        elif "code_embedding" in name:
            _normal(p, rng, groups**0.5)  # their mean over the groups is used
        elif "codec_embedding" in name:
            _normal(p, rng, 0.7)  # their sum over the groups is used
        elif "embed_tokens" in name:
            _normal(p, rng, 1.0)
        elif name in transposed:
            stride = model.get_submodule(name.removesuffix(".weight")).stride[0]
            _normal(p, rng, (p.shape[0] * p.shape[2] / stride) ** -0.5)
        elif "code2wav.decoder" in name and ("conv1" in name or "conv2" in name):
            _normal(p, rng, 0.6 * (p.shape[1] * p.shape[2]) ** -0.5)
        elif "experts" in name:
            _normal(p, rng, _matrix_gain(name) * p.shape[-1] ** -0.5)
        else:
            _normal(p, rng, _matrix_gain(name) * p[0].numel() ** -0.5)


@torch.no_grad()
def favour(head: nn.Linear, rows: list[int], others: float) -> None:
    """Scales down every row of a head but the given, so that greedy choices come from these."""
    keep = torch.zeros(head.out_features, dtype=torch.bool)
    keep[rows] = True
    head.weight[~keep] *= others


@torch.no_grad()
def calibrate_waveform(code2wav: nn.Module, seed: int, std: float = 0.25, offset: float = 0.1) -> None:
    """Scales the last convolution so that random codes sound at `std` around +-`offset`, rarely clipped."""
    config = code2wav.config
    rng = torch.Generator().manual_seed(seed)
    codes = torch.randint(config.codebook_size, (1, config.num_quantizers, 40), generator=rng)
    last = code2wav.decoder[-1].conv
    raw = []
    hook = last.register_forward_hook(lambda _module, _inputs, output: raw.append(output))
    code2wav(codes)
    hook.remove()
    last.weight *= std / raw[0].std()
    mean = (raw[0].mean() - last.bias) * std / raw[0].std()
    last.bias.copy_(-mean - offset if mean > 0 else -mean + offset)  # the side on which the bias is larger


@torch.no_grad()
def round_to(model: nn.Module, dtype: torch.dtype) -> None:
    """Rounds all weights to `dtype`."""
    for p in model.parameters():
        p.copy_(p.to(dtype).to(p.dtype))


def stop_row(turns: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor | None:
    """Solves for a stop token's head row.

    Each turn gives its hidden rows [steps, hidden] and the best other score [steps] at each step; the stop token
    shall win at the last step of each and lose at all earlier ones, by STOP_MARGIN. The row of least absolute sum
    that does so, or None.
    """
    above, limit = [], []
    for hidden, best in turns:
        rows, scores = hidden.double().numpy(), best.double().numpy()
        above += [*rows[:-1], -rows[-1]]
        limit += [*(scores[:-1] - STOP_MARGIN), -(scores[-1] + STOP_MARGIN)]
    above = np.array(above)
    width = above.shape[1]
    # row = positive - negative part, both >= 0, so that the sum of both is linear
    found = linprog(np.ones(2 * width), A_ub=np.hstack([above, -above]), b_ub=limit, bounds=(0, None))
    if not found.success:
        return None
    return torch.from_numpy(found.x[:width] - found.x[width:]).float()
