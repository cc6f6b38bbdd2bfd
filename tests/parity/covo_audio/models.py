"""A derivation of Covo-Audio-Chat in torch, written from its description, with the names of the published weights.

The audio encoder is transformers' Whisper, the language model its Qwen2, the vocoder's activations those of its
Qwen2.5-Omni. Written here is what stands between them, the flow over a whole sequence, and the vocoder. It draws the
engine's random numbers.
"""

import itertools
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm
from transformers import Qwen2Config, Qwen2ForCausalLM, WhisperConfig
from transformers.models.qwen2_5_omni.modeling_qwen2_5_omni import (
    Qwen2_5OmniAntiAliasedActivation1d,
    Qwen2_5OmniSnakeBeta,
)
from transformers.models.whisper.modeling_whisper import WhisperEncoder

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from draws import normal

TEXT_IDS = 400
CODES = 64
VOCABULARY = TEXT_IDS + CODES
HIDDEN = 32
THETA = 1_000_000
TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
# 160 mel frames a window.
ENCODER: dict[str, Any] = {
    "num_mel_bins": 64,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "d_model": 32,
    "max_source_positions": 80,
}
ADAPTER = 40
# Mel frames of a row of the language model.
FRAMES = 16
LATENTS, SPEAKER, RATIO = 8, 10, 4
FLOW: dict[str, Any] = {"hidden_size": 32, "num_layers": 3, "num_heads": 2, "ffn_hidden_size": 48, "input": 12}
POINTS, GUIDANCE, FLOW_THETA = 10, 1.0, 50_000
VOCODER: dict[str, Any] = {
    "upsample_initial_channel": 64,
    "upsample_rates": [5, 3, 2, 2, 2, 2],
    "upsample_kernel_sizes": [10, 6, 4, 4, 4, 4],
    "resblock_kernel_sizes": [3, 5],
    "resblock_dilation_sizes": [[1, 3, 5], [1, 2, 3]],
}


class Downsample(nn.Module):
    """Half as many rows: a convolution and two linear layers."""

    def __init__(self, width: int, out: int):
        super().__init__()
        self.conv1d = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.linear1, self.linear2 = nn.Linear(width, ADAPTER), nn.Linear(ADAPTER, out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv1d(x.T).T.relu()
        return self.linear2(self.linear1(x).relu())


class CovoAudio(nn.Module):
    """Encoder, adapter and language model."""

    def __init__(self):
        super().__init__()
        text = Qwen2Config(
            **TEXT,
            rope_parameters={"rope_type": "default", "rope_theta": float(THETA)},
            attn_implementation="eager",
        )
        self.llm = Qwen2ForCausalLM(text)
        self.encoder = WhisperEncoder(WhisperConfig(**ENCODER, attn_implementation="eager"))
        width = ENCODER["d_model"]
        self.audio_adapter = nn.Module()
        self.audio_adapter.downsample_layers = nn.ModuleList(
            [Downsample(width, HIDDEN if at == 2 else width) for at in range(3)]
        )

    def hear(self, mel: torch.Tensor, frames: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows of the encoder, and of the language model, of whole windows `[bins, frames]`; `frames` are sound."""
        window = 2 * ENCODER["max_source_positions"]
        encoded, rows = [], []
        for at, part in enumerate(mel.split(window, 1)):
            encoded.append(self.encoder(part[None]).last_hidden_state[0])
            x = encoded[-1]
            for layer in self.audio_adapter.downsample_layers:
                x = layer(x)
            rows.append(x[: math.ceil(min(frames - at * window, window) / FRAMES)])
        return torch.cat(encoded), torch.cat(rows)

    def embed(self, ids: list[int]) -> torch.Tensor:
        """Rows of ids: text and codes."""
        return self.llm.model.embed_tokens.weight[ids]


class Attention(nn.Module):
    """Attention of everything to everything, with rotated halves of each head."""

    def __init__(self):
        super().__init__()
        dim = FLOW["hidden_size"]
        for name in ("q_proj", "k_proj", "v_proj"):
            setattr(self, name, nn.Linear(dim, dim, bias=False))
        self.o_proj = nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = FLOW["num_heads"]
        width = x.shape[1] // heads
        q, k, v = (of(x).view(len(x), heads, width).transpose(0, 1) for of in (self.q_proj, self.k_proj, self.v_proj))
        frequency = FLOW_THETA ** (-torch.arange(0, width, 2) / width)
        turn = torch.polar(torch.ones(()), torch.arange(len(x))[:, None] * frequency)

        def rotated(t: torch.Tensor) -> torch.Tensor:
            turned = torch.complex(t[..., : width // 2], t[..., width // 2 :]) * turn
            return torch.cat([turned.real, turned.imag], -1)

        scores = (rotated(q) @ rotated(k).transpose(1, 2) / math.sqrt(width)).softmax(-1)
        return self.o_proj((scores @ v).transpose(0, 1).reshape(len(x), -1))


def norm(x: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """A norm whose weights come of the condition."""
    return functional.layer_norm(x, x.shape[1:], eps=1e-6) * (1 + scale) + shift


class Block(nn.Module):
    """A layer of the transformer."""

    def __init__(self):
        super().__init__()
        dim, inner = FLOW["hidden_size"], FLOW["ffn_hidden_size"]
        self.attn, self.ffn = Attention(), nn.Module()
        self.ffn.fc1, self.ffn.fc2 = nn.Linear(dim, inner), nn.Linear(inner, dim)
        self.modulation_layer = nn.Sequential(nn.SiLU(), nn.Linear(dim, 6 * dim))

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        shift, scale, gate, shift_ffn, scale_ffn, gate_ffn = self.modulation_layer(condition).chunk(6)
        x = x + gate * self.attn(norm(x, shift, scale))
        h = functional.gelu(self.ffn.fc1(norm(x, shift_ffn, scale_ffn)), approximate="tanh")
        return x + gate_ffn * self.ffn.fc2(h)


class Flow(nn.Module):
    """Codes to latents, by nine steps of the midpoint method."""

    def __init__(self):
        super().__init__()
        dim = FLOW["hidden_size"]
        self.token_embedding = nn.Embedding(CODES, FLOW["input"])
        up = nn.ConvTranspose1d(dim, dim, 2 * RATIO, stride=RATIO, padding=RATIO // 2)
        self.token_proj = nn.ModuleList([nn.Linear(FLOW["input"], dim), up])
        self.cond_proj = nn.Linear(dim + SPEAKER, dim)
        self.transformer_input_proj = nn.Linear(dim + 2 * LATENTS, dim)
        self.time_embedder = nn.Module()
        self.time_embedder.mlp = nn.Sequential(nn.Linear(256, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.conv_embed = nn.Module()
        self.conv_embed.conv = nn.Conv1d(dim, dim, 31, padding=15, groups=16)
        self.blocks = nn.ModuleList([Block() for _ in range(FLOW["num_layers"])])
        self.output_layer = nn.Module()
        self.output_layer.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(dim, 2 * dim))
        self.output_layer.linear = nn.Linear(dim, LATENTS)

    def slope(self, inputs: list[torch.Tensor], time: float, speaker: torch.Tensor) -> torch.Tensor:
        """One evaluation for rows of codes, known latents and the value of the solve."""
        angle = time * torch.exp(torch.arange(128) * (-math.log(10_000) / 128))
        embedded = self.time_embedder.mlp(torch.cat([angle.cos(), angle.sin()]))
        condition = self.cond_proj(torch.cat([embedded, speaker]))
        x = self.transformer_input_proj(torch.cat(inputs, 1))
        x = x + functional.gelu(self.conv_embed.conv(x.T)).T
        for block in self.blocks:
            x = block(x, condition)
        shift, scale = self.output_layer.adaLN_modulation(condition).chunk(2)
        return self.output_layer.linear(norm(x, shift, scale))

    def solve(self, codes: list[int], known: torch.Tensor, speaker: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Latents of codes, the first of which are known; their normal numbers begin the solve."""
        up = self.token_proj[1]
        rows = up(self.token_proj[0](self.token_embedding(torch.tensor(codes))).T).T
        condition = torch.zeros(len(rows), LATENTS)
        condition[: len(known)] = known
        x, times = noise, torch.linspace(0, 1, POINTS)

        def slope(x: torch.Tensor, time: float) -> torch.Tensor:
            guided = self.slope([rows, condition, x], time, speaker)
            return guided + (guided - self.slope([rows * 0, condition, x], time, speaker)) * GUIDANCE

        for begin, end in itertools.pairwise(times):
            length = end - begin
            middle = x + slope(x, float(begin)) * length / 2
            x = x + slope(middle, float(begin + length / 2)) * length
        return x


class Voice:
    """A recording that precedes the speech."""

    def __init__(self, codes: int):
        rng = torch.Generator().manual_seed(5)
        self.codes = torch.randint(CODES, (codes,), generator=rng)
        self.latents = torch.randn(RATIO * codes, LATENTS, generator=rng)
        self.speaker = torch.randn(SPEAKER, generator=rng)


def latents(flow: Flow, voice: Voice, codes: list[int], windows: tuple[int, int, int]) -> torch.Tensor:
    """Latents of codes in windows: behind the recording, codes of earlier windows with their latents, new ones, and
    some whose latents come of the next window."""
    left, new, ahead = windows
    recorded = len(voice.latents)
    noise = torch.tensor(normal(0, 0, np.arange(recorded + RATIO * len(codes)), LATENTS))
    done = torch.zeros(0, LATENTS)
    for begin in range(0, len(codes), new):
        first, last = max(begin - left, 0), min(begin + new + ahead, len(codes))
        known = torch.cat([voice.latents, done[RATIO * first :]])
        drawn = torch.cat([noise[:recorded], noise[recorded + RATIO * first : recorded + RATIO * last]])
        solved = flow.solve([*voice.codes.tolist(), *codes[first:last]], known, voice.speaker, drawn)[len(known) :]
        done = torch.cat([done, solved[: RATIO * (min(begin + new, len(codes)) - begin)]])
    return done


def snake(channels: int) -> Qwen2_5OmniAntiAliasedActivation1d:
    """The activation between two filters."""
    return Qwen2_5OmniAntiAliasedActivation1d(activation=Qwen2_5OmniSnakeBeta(channels))


class ResidualBlock(nn.Module):
    """Pairs of causal convolutions, each after an activation."""

    def __init__(self, channels: int, kernel: int, dilations: list[int]):
        super().__init__()

        def conv(dilation: int) -> nn.Module:
            return weight_norm(nn.Conv1d(channels, channels, kernel, dilation=dilation))

        self.convs1 = nn.ModuleList([conv(dilation) for dilation in dilations])
        self.convs2 = nn.ModuleList([conv(1) for _ in dilations])
        self.activations = nn.ModuleList([snake(channels) for _ in range(2 * len(dilations))])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for at, (first, second) in enumerate(zip(self.convs1, self.convs2, strict=True)):
            h = causal(first, self.activations[2 * at](x))
            x = x + causal(second, self.activations[2 * at + 1](h))
        return x


def causal(conv: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A convolution over rows up to its own."""
    return conv(functional.pad(x, ((conv.kernel_size[0] - 1) * conv.dilation[0], 0)))


class Vocoder(nn.Module):
    """Latents to samples."""

    def __init__(self):
        super().__init__()
        first, rates = VOCODER["upsample_initial_channel"], VOCODER["upsample_rates"]
        channels = [first >> (level + 1) for level in range(len(rates))]
        self.conv_pre = weight_norm(nn.Conv1d(LATENTS, first, 7, padding=3))
        self.ups = nn.ModuleList(
            [
                nn.ModuleList([weight_norm(nn.ConvTranspose1d(2 * c, c, kernel, stride=rate))])
                for c, kernel, rate in zip(channels, VOCODER["upsample_kernel_sizes"], rates, strict=True)
            ]
        )
        sizes = list(zip(VOCODER["resblock_kernel_sizes"], VOCODER["resblock_dilation_sizes"], strict=True))
        self.resblocks = nn.ModuleList([ResidualBlock(c, *size) for c in channels for size in sizes])
        self.activation_post = snake(channels[-1])
        self.conv_post = weight_norm(nn.Conv1d(channels[-1], 1, 7))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        x = self.conv_pre(rows.T[None])
        count = len(VOCODER["resblock_kernel_sizes"])
        for level, rate in enumerate(VOCODER["upsample_rates"]):
            x = self.ups[level][0](x)[..., :-rate]
            x = sum(block(x) for block in self.resblocks[level * count : (level + 1) * count]) / count
        return causal(self.conv_post, self.activation_post(x)).tanh()[0, 0]


class Token2Wav(nn.Module):
    """Flow and vocoder, with the names of the published file."""

    def __init__(self):
        super().__init__()
        self.token2latent, self.wavegan = Flow(), Vocoder()


def stored(model: nn.Module) -> dict[str, torch.Tensor]:
    """The weights with the names of older weight norms, which the published file has."""
    names = {"parametrizations.weight.original0": "weight_g", "parametrizations.weight.original1": "weight_v"}
    found = {}
    for name, p in model.state_dict().items():
        module, _, leaf = name.partition("parametrizations")
        older = module + names["parametrizations" + leaf] if leaf else name
        if not name.endswith("filter"):
            found[older] = p.contiguous()
    return found


@torch.no_grad()
def draw(model: nn.Module, seed: int) -> nn.Module:
    """Draws every parameter, in the order of its name, at scales at which each one matters."""
    rng = torch.Generator().manual_seed(seed)
    for name, p in sorted(model.named_parameters()):
        if ("norm" in name) and name.endswith("weight"):
            p.copy_(0.7 + 0.6 * torch.rand(p.shape, generator=rng))
        elif name.endswith("original0"):
            # Residuals that do not outgrow what they are added to, and samples within full scale.
            gain = 0.4 if "convs2" in name else 0.05 if "conv_post" in name else 1.0
            p.copy_(gain * (0.8 + 0.6 * torch.rand(p.shape, generator=rng)))
        elif p.ndim == 1:
            p.copy_(0.3 * torch.randn(p.shape, generator=rng))
        elif "embed_tokens" in name or "token_embedding" in name:
            p.copy_(torch.randn(p.shape, generator=rng))
        elif "embed_positions" in name:
            continue
        else:
            gain = 6.0 if "lm_head" in name else 1.5 if "proj" in name or "fc2" in name else 1.0
            p.copy_(gain * torch.randn(p.shape, generator=rng) / math.sqrt(p[0].numel()))
    return model.eval()
