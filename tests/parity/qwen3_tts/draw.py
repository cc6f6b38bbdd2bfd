"""Random weights that hide nothing: every parameter is drawn at a scale at which its block moves its output about as
much as its input does. A freshly made reference is almost silent.
"""

import torch
from torch import nn

GAINS = {
    "lm_head": 3.0,
    "codec_head": 3.0,
    "down_proj": 2.5,  # after silu(gate) * up, of small variance
    "linear_fc1": 1.3,
    "linear_fc2": 2.0,
    "pwconv2": 1.5,
    "self_attn.q_proj": 1.5,
    "self_attn.k_proj": 1.5,
    "v_proj": 1.3,
    "o_proj": 1.5,  # attention averages
}


def _uniform(p, rng, low, high):
    p.copy_(torch.rand(p.shape, generator=rng) * (high - low) + low)


def _normal(p, rng, std):
    p.copy_(torch.randn(p.shape, generator=rng) * std)


@torch.no_grad()
def redraw(model: nn.Module, seed: int) -> None:
    """Draws every parameter, in the order of its name."""
    rng = torch.Generator().manual_seed(seed)
    modules = dict(model.named_modules())
    for name, p in sorted(model.named_parameters()):
        module, leaf = name.rsplit(".", 1)
        if leaf in ("alpha", "beta"):
            _uniform(p, rng, 0.3, 0.8)
            signs = torch.where(torch.rand(p.shape, generator=rng) < 0.5, -1.0, 1.0)
            # Low frequencies only: high ones turn rounding errors into differences above 1e-4.
            p.mul_(-1.0 if leaf == "alpha" else signs)
        elif leaf in ("gamma", "scale"):
            _uniform(p, rng, 0.4, 0.9)
        elif leaf == "cluster_usage":
            _uniform(p, rng, 0.5, 3.0)
        elif leaf == "embedding_sum":
            _normal(p, rng, 1.5)
        elif "q_norm" in name or "k_norm" in name:
            _uniform(p, rng, 1.0, 1.8)
        elif leaf == "bias":
            _normal(p, rng, 0.3)
        elif p.dim() == 1:
            _uniform(p, rng, 0.6, 1.4)
        elif "codec_embedding" in name:
            _normal(p, rng, 0.7)  # their sum over the groups is used
        elif "text_embedding" in name:
            _normal(p, rng, 1.0)
        elif isinstance(modules[module], nn.ConvTranspose1d):
            _normal(p, rng, (p.shape[0] * p.shape[2] / modules[module].stride[0]) ** -0.5)
        elif "decoder.decoder" in name and ("conv1" in name or "conv2" in name):
            _normal(p, rng, 0.6 * (p.shape[1] * p.shape[2]) ** -0.5)
        else:
            gain = next((gain for part, gain in GAINS.items() if part in name), 1.0)
            _normal(p, rng, gain * p[0].numel() ** -0.5)

    for name, p in sorted(model.named_buffers()):
        leaf = name.rsplit(".", 1)[-1]
        if leaf == "cluster_usage":
            _uniform(p, rng, 0.5, 3.0)
        elif leaf == "embed_sum":
            # Each quantizer of the encoder takes what the one before it has left.
            depth = int(name.split("layers.")[1].split(".")[0])
            _normal(p, rng, 0.8**depth)


@torch.no_grad()
def calibrate_waveform(codec: nn.Module, seed: int, std: float = 0.25, offset: float = 0.1) -> None:
    """Scales the last convolution so that random codes sound at `std` around +-`offset`, rarely clipped."""
    config = codec.config.decoder_config
    rng = torch.Generator().manual_seed(seed)
    codes = torch.randint(config.codebook_size, (1, config.num_quantizers, 40), generator=rng)
    last = codec.decoder.decoder[-1].conv
    raw = []
    hook = last.register_forward_hook(lambda _module, _inputs, output: raw.append(output))
    codec.decoder(codes)
    hook.remove()
    last.weight *= std / raw[0].std()
    mean = (raw[0].mean() - last.bias) * std / raw[0].std()
    last.bias.copy_(-mean - offset if mean > 0 else -mean + offset)
