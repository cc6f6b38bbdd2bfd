"""A derivation of Ming's talker in torch, written from its description, with the names of the published weights.

The reference runs on a GPU alone: it casts to bfloat16 by CUDA's autocast. Here the stacks over text and over rows of
sound are transformers' Qwen2; the flow head, the aggregator and the inverse transform are written out, whole sequences
at once, in single precision.
"""

import itertools
import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import Qwen2Config, Qwen2Model

VOCABULARY = 310
HIDDEN = 32
LATENT = 8
PATCH, HISTORY = 4, 32
STEPS = 10
GUIDANCE = 2.0
FREQUENCIES = 256
RATE, HOP, UPSAMPLED = 44100, 64, 4
# Times of ten steps, in 32nds: short ones first.
TABLE = [0, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32]
LLM: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
}
FLOW: dict[str, Any] = {"hidden_size": 32, "depth": 2, "num_heads": 2, "mlp_ratio": 2.0}
AGGREGATOR: dict[str, Any] = {"hidden_size": 24, "depth": 2, "num_heads": 3, "mlp_ratio": 2.0}
BACKBONE: dict[str, Any] = {
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "use_sliding_window": True,
    "sliding_window": 11,
    "max_window_layers": 0,
}
SOUND: dict[str, Any] = {
    "sample_rate": RATE,
    "patch_size": UPSAMPLED,
    "enc_kwargs": {"backbone": BACKBONE, "input_dim": HOP, "hop_size": HOP, "latent_dim": LATENT},
    "dec_kwargs": {"backbone": BACKBONE, "output_dim": HOP, "latent_dim": LATENT},
}


def stack(sizes: dict[str, Any]) -> Qwen2Model:
    """Layers of Qwen2."""
    sizes = {"vocab_size": 1, **sizes}
    theta = sizes.pop("rope_theta")
    rope = {"rope_type": "default", "rope_theta": theta}
    return Qwen2Model(Qwen2Config(**sizes, rope_parameters=rope, attn_implementation="eager"))


def rotated(x: torch.Tensor) -> torch.Tensor:
    """Rotates neighbouring numbers of `[heads, rows, width]` by their rows."""
    width = x.shape[-1]
    angle = torch.arange(x.shape[1])[:, None] * (10000.0 ** (-torch.arange(0, width, 2) / width))[None]
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = torch.stack([even * angle.cos() - odd * angle.sin(), odd * angle.cos() + even * angle.sin()], -1)
    return turned.flatten(-2)


class Block(nn.Module):
    """A layer in which every row sees every other."""

    def __init__(self, sizes: dict[str, Any]):
        super().__init__()
        width, self.heads = sizes["hidden_size"], sizes["num_heads"]
        inner = int(width * sizes["mlp_ratio"])
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-6), nn.RMSNorm(width, eps=1e-6)
        self.attn = nn.Module()
        for name in ("to_q", "to_k", "to_v"):
            setattr(self.attn, name, nn.Linear(width, width))
        self.attn.to_out = nn.ModuleList([nn.Linear(width, width)])
        self.normed = sizes.get("qk_norm") == "rms_norm"
        if self.normed:
            for name in ("q_norm", "k_norm"):
                setattr(self.attn, name, nn.RMSNorm(width // self.heads, eps=1e-6))
        up = nn.Sequential(nn.Linear(width, inner), nn.GELU(approximate="tanh"))
        self.mlp = nn.Module()
        self.mlp.ff = nn.Sequential(up, nn.Identity(), nn.Linear(inner, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm1(x)
        projections = (self.attn.to_q(h), self.attn.to_k(h), self.attn.to_v(h))
        q, k, v = (t.reshape(len(x), self.heads, -1).transpose(0, 1) for t in projections)
        if self.normed:
            q, k = self.attn.q_norm(q), self.attn.k_norm(k)
        h = functional.scaled_dot_product_attention(rotated(q), rotated(k), v)
        x = x + self.attn.to_out[0](h.transpose(0, 1).reshape(len(x), -1))
        return x + self.mlp.ff(self.norm2(x))


class FinalLayer(nn.Module):
    """Norm and matrix after the layers."""

    def __init__(self, width: int, out: int):
        super().__init__()
        self.norm_final = nn.RMSNorm(width, eps=1e-6)
        self.linear = nn.Linear(width, out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.norm_final(x))


class Flow(nn.Module):
    """From a time, a condition, earlier latents and noisy ones to a slope."""

    def __init__(self, sizes: dict[str, Any]):
        super().__init__()
        width = sizes["hidden_size"]
        self.t_embedder = nn.Module()
        self.t_embedder.time_mlp = nn.Sequential(nn.Linear(FREQUENCIES, width), nn.SiLU(), nn.Linear(width, width))
        self.x_embedder = nn.Linear(LATENT, width)
        self.c_embedder = nn.Module()
        self.c_embedder.cond_embedder = nn.Linear(HIDDEN, width)
        self.blocks = nn.ModuleList([Block(sizes) for _ in range(sizes["depth"])])
        self.final_layer = FinalLayer(width, LATENT)

    def slope(self, time: float, condition: torch.Tensor, history: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Slope of `x`, [PATCH, LATENT]."""
        half = FREQUENCIES // 2
        angle = 1000 * time * torch.exp(torch.arange(half) * -(math.log(10000) / (half - 1)))
        embedded = self.t_embedder.time_mlp(torch.cat([angle.sin(), angle.cos()]))
        first = embedded + self.c_embedder.cond_embedder(condition)
        rows = torch.cat([first[None], self.x_embedder(torch.cat([history, x]))])
        for block in self.blocks:
            rows = block(rows)
        return self.final_layer(rows)[-PATCH:]

    def solve(self, condition: torch.Tensor, history: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Latents of a patch, by Euler's method with guidance."""
        swayed = [at / 32 - (math.cos(math.pi / 2 * at / 32) - 1 + at / 32) for at in TABLE]
        x = noise
        for now, then in itertools.pairwise(swayed):
            guided = self.slope(now, condition, history, x)
            null = self.slope(now, torch.zeros_like(condition), history, x)
            x = x + (then - now) * (guided + (guided - null) * GUIDANCE)
        return x


class Aggregator(nn.Module):
    """Latents of a patch to a row of the language model: that of a learnt one before them."""

    def __init__(self, sizes: dict[str, Any]):
        super().__init__()
        width = sizes["hidden_size"]
        self.word_embedder = nn.Embedding(1, width)
        self.x_embedder = nn.Linear(LATENT, width)
        self.blocks = nn.ModuleList([Block(sizes) for _ in range(sizes["depth"])])
        self.final_layer = FinalLayer(width, HIDDEN)

    def forward(self, latents: torch.Tensor) -> torch.Tensor:
        rows = torch.cat([self.word_embedder.weight, self.x_embedder(latents)])
        for block in self.blocks:
            rows = block(rows)
        return self.final_layer(rows)[0]


class Decoder(nn.Module):
    """Latents to samples."""

    def __init__(self):
        super().__init__()
        width = BACKBONE["hidden_size"]
        self.fc1 = nn.Linear(LATENT, width)
        self.decoder = stack(BACKBONE)
        del self.decoder.embed_tokens
        self.head = nn.Module()
        self.head.out = nn.Linear(width, 4 * HOP + 2)

    def forward(self, latents: torch.Tensor) -> torch.Tensor:
        x = functional.interpolate(self.fc1(latents).T[None], scale_factor=UPSAMPLED, mode="linear")[0].T
        x = self.head.out(self.decoder(inputs_embeds=x[None]).last_hidden_state[0])
        magnitude, phase = x.T.chunk(2)
        magnitude = magnitude.exp().clip(max=100.0)
        spectrum = torch.complex(magnitude * phase.cos(), magnitude * phase.sin())
        window = torch.hann_window(4 * HOP)
        frames = torch.fft.irfft(spectrum, 4 * HOP, dim=0) * window[:, None]
        length = (frames.shape[1] - 1) * HOP + 4 * HOP
        sound, weight = torch.zeros(length), torch.zeros(length)
        for at in range(frames.shape[1]):
            sound[at * HOP : at * HOP + 4 * HOP] += frames[:, at]
            weight[at * HOP : at * HOP + 4 * HOP] += window**2
        cut = (4 * HOP - HOP) // 2
        return (sound / weight)[cut:-cut]


class Talker(nn.Module):
    """Language model, flow head, aggregator and stop head; the parts of both published folders."""

    def __init__(self, flow: dict[str, Any], aggregator: dict[str, Any]):
        super().__init__()
        self.llm = stack(LLM)
        self.flow, self.aggregator = Flow(flow), Aggregator(aggregator)
        self.stop_head = nn.Linear(HIDDEN, 2)
        self.sound = Decoder()

    def hidden(self, ids: list[int], patches: list[torch.Tensor]) -> torch.Tensor:
        """Last hidden row after a prompt, in which -1 is the row of no speaker, and patches."""
        table = self.llm.embed_tokens.weight
        rows = [table[number] if number >= 0 else torch.zeros(HIDDEN) for number in ids]
        rows += [self.aggregator(patch) for patch in patches]
        return self.llm(inputs_embeds=torch.stack(rows)[None]).last_hidden_state[0, -1]


@torch.no_grad()
def draw(model: nn.Module, seed: int) -> nn.Module:
    """Draws every parameter, in the order of its name, at scales at which each one matters."""
    rng = torch.Generator().manual_seed(seed)
    for name, p in sorted(model.named_parameters()):
        if "norm" in name and name.endswith("weight"):
            p.copy_(0.7 + 0.6 * torch.rand(p.shape, generator=rng))
        elif p.ndim == 1:
            p.copy_(0.3 * torch.randn(p.shape, generator=rng))
        elif "embed_tokens" in name or "word_embedder" in name:
            p.copy_(torch.randn(p.shape, generator=rng))
        else:
            gain = 3.0 if "stop_head" in name else 1.5 if "to_" in name or "_proj" in name else 1.0
            p.copy_(gain * torch.randn(p.shape, generator=rng) / math.sqrt(p[0].numel()))
        p.copy_(p.to(torch.bfloat16).float())
    # Neither silent nor clipped.
    bias = model.sound.head.out.bias
    bias[: 2 * HOP + 1].sub_(0.5)
    bias.copy_(bias.to(torch.bfloat16).float())
    return model.eval()
