"""Random weights that give every block an effect, and the rows that end greedy answers. token2wav's are drawn as for
its own fixture.
"""

import numpy as np
import torch
from scipy.optimize import linprog
from torch import nn

GAINS = {
    "lm_head": 3.0,
    "codec_head": 3.0,
    "thinker_to_talker_proj": 1.2,
    "down_proj": 2.5,  # after silu(gate) * up, of small variance
    "self_attn.q_proj": 1.5,
    "self_attn.k_proj": 1.5,
    "v_proj": 1.3,
    "o_proj": 1.5,  # attention averages
    "out_proj": 1.5,
    "fc2": 1.5,
    "conv1": 1.6,
    "conv2": 1.6,
    "audio_tower.proj": 1.6,
}
# How far, in logits, a stop stays below the best other choice before the stop, and above it at the stop.
MARGIN = 1.0


def _uniform(p, rng, low, high):
    p.copy_(torch.rand(p.shape, generator=rng) * (high - low) + low)


def _normal(p, rng, std):
    p.copy_(torch.randn(p.shape, generator=rng) * std)


@torch.no_grad()
def redraw(model: nn.Module, seed: int) -> None:
    """Draws every parameter, in the order of its name."""
    rng = torch.Generator().manual_seed(seed)
    for name, p in sorted(model.named_parameters()):
        leaf = name.rsplit(".", 1)[-1]
        if name.endswith(("q_proj.bias", "k_proj.bias")):
            _normal(p, rng, 0.8)
        elif leaf == "bias":
            _normal(p, rng, 0.3)
        elif p.dim() == 1:
            _uniform(p, rng, 0.6, 1.4)
        elif "embed_tokens" in name or "bos_eos" in name:
            _normal(p, rng, 1.0)
        else:
            gain = next((gain for part, gain in GAINS.items() if part in name), 1.0)
            _normal(p, rng, gain * p[0].numel() ** -0.5)


def speakers(frames: dict[str, int], bos: dict[str, int], conditioning: int, mel: int, seed: int) -> dict:
    """Voices as the published spk_dict.pt has them."""
    rng = torch.Generator().manual_seed(seed)
    return {
        name: {
            "bos_token": bos[name],
            "cond": torch.randn(1, conditioning, generator=rng),
            "ref_mel": torch.randn(1, length, mel, generator=rng) - 1.0,
        }
        for name, length in frames.items()
    }


def row(conditions: list[tuple[torch.Tensor, float, float]]) -> torch.Tensor | None:
    """A head's row whose logit of each hidden row lies within (low, high): the one of least absolute sum, or None."""
    hidden = np.array([h.double().numpy() for h, _, _ in conditions])
    low, high = (np.array([c[i] for c in conditions]) for i in (1, 2))
    kept = [(hidden[np.isfinite(high)], high[np.isfinite(high)]), (-hidden[np.isfinite(low)], -low[np.isfinite(low)])]
    above, limit = np.vstack([a for a, _ in kept]), np.concatenate([b for _, b in kept])
    width = hidden.shape[1]
    # row = positive - negative part, both >= 0, so that the sum of both is linear
    found = linprog(np.ones(2 * width), A_ub=np.hstack([above, -above]), b_ub=limit, bounds=(0, None))
    if not found.success:
        return None
    return torch.from_numpy(found.x[:width] - found.x[width:]).float()
