"""A derivation of CosyVoice3 in torch, written from its description, with the names of the published weights.

No package of the reference exists for this version. The language model's layers are transformers' Qwen2; flow and
vocoder are written here, whole sequences at once: the flow with its mask over chunks, the vocoder with the phase in
double precision.
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
from transformers import Qwen2Config, Qwen2ForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from draws import normal, uniform

CODES = 64
SPECIAL = 200
TEXT_ROWS = 310
MEL = 20
SPEAKER = 12
CHUNK = 50
STEPS = 10
GUIDANCE = 0.7
LOOK_AHEAD = 3
QWEN2: dict[str, Any] = {
    "vocab_size": TEXT_ROWS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
}
DIT = {"dim": 32, "depth": 2, "heads": 2, "dim_head": 16, "ff_mult": 2}
CHANNELS = 24
HIFT: dict[str, Any] = {
    "base_channels": 16,
    "rates": [8, 5, 3],
    "kernels": [16, 11, 7],
    "blocks": [3, 7, 11],
    "source_blocks": [7, 7, 11],
    "dilations": [1, 3, 5],
    "pitch_channels": 12,
    "harmonics": 8,
}
N_FFT, HOP, RATE = 16, 4, 24000


class LanguageModel(nn.Module):
    """Tables and head of codes around Qwen2."""

    def __init__(self):
        super().__init__()
        self.llm = nn.Module()
        self.llm.model = Qwen2ForCausalLM(Qwen2Config(**QWEN2, attn_implementation="eager"))
        self.speech_embedding = nn.Embedding(CODES + SPECIAL, QWEN2["hidden_size"])
        self.llm_decoder = nn.Linear(QWEN2["hidden_size"], CODES + SPECIAL, bias=False)

    def logits(self, rows: list[tuple[str, int]]) -> torch.Tensor:
        """Logits after the last of the rows, each a text token or an id of the codes' table."""
        text = self.llm.model.model.embed_tokens
        x = torch.stack([(text if kind == "text" else self.speech_embedding).weight[number] for kind, number in rows])
        hidden = self.llm.model.model(inputs_embeds=x[None]).last_hidden_state
        return self.llm_decoder(hidden[0, -1])


class LookAhead(nn.Module):
    """Convolutions over codes: the first sees three ahead, the second two behind."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(MEL, CHANNELS, LOOK_AHEAD + 1)
        self.conv2 = nn.Conv1d(CHANNELS, MEL, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = functional.leaky_relu(self.conv1(functional.pad(x.T[None], (0, LOOK_AHEAD))))
        return x + self.conv2(functional.pad(h, (2, 0)))[0].T


class InputEmbedding(nn.Module):
    """Projection of the inputs, and positions by two grouped causal convolutions."""

    def __init__(self):
        super().__init__()
        dim = DIT["dim"]
        self.proj = nn.Linear(4 * MEL, dim)
        self.conv_pos_embed = nn.Module()
        for name in ("conv1", "conv2"):
            setattr(self.conv_pos_embed, name, nn.Sequential(nn.Conv1d(dim, dim, 31, groups=16), nn.Mish()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.proj(x)
        h = x.T[None]
        for conv in (self.conv_pos_embed.conv1, self.conv_pos_embed.conv2):
            h = conv(functional.pad(h, (30, 0)))
        return h[0].T + x


class Norm(nn.Module):
    """Linear layer of a norm's modulation."""

    def __init__(self, parts: int):
        super().__init__()
        self.linear = nn.Linear(DIT["dim"], parts * DIT["dim"])

    def forward(self, time: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.linear(functional.silu(time)).chunk(self.linear.out_features // DIT["dim"])


class Block(nn.Module):
    """A layer of the transformer."""

    def __init__(self):
        super().__init__()
        dim, inner = DIT["dim"], DIT["heads"] * DIT["dim_head"]
        self.attn_norm = Norm(6)
        self.attn = nn.Module()
        for name in ("to_q", "to_k", "to_v"):
            setattr(self.attn, name, nn.Linear(dim, inner))
        self.attn.to_out = nn.ModuleList([nn.Linear(inner, dim)])
        self.ff = nn.Module()
        up = nn.Sequential(nn.Linear(dim, DIT["ff_mult"] * dim), nn.GELU(approximate="tanh"))
        self.ff.ff = nn.Sequential(up, nn.Identity(), nn.Linear(DIT["ff_mult"] * dim, dim))

    def forward(self, x: torch.Tensor, time: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        norm = nn.LayerNorm(DIT["dim"], eps=1e-6, elementwise_affine=False)
        shift, scale, gate, shift_mlp, scale_mlp, gate_mlp = self.attn_norm(time)
        h = norm(x) * (1 + scale) + shift
        q, k, v = rotated(self.attn.to_q(h)), rotated(self.attn.to_k(h)), self.attn.to_v(h)
        heads = [t.reshape(len(x), DIT["heads"], -1).transpose(0, 1) for t in (q, k, v)]
        h = functional.scaled_dot_product_attention(*heads, attn_mask=mask).transpose(0, 1).reshape(len(x), -1)
        x = x + gate * self.attn.to_out[0](h)
        return x + gate_mlp * self.ff.ff(norm(x) * (1 + scale_mlp) + shift_mlp)


def rotated(x: torch.Tensor) -> torch.Tensor:
    """Rotates neighbouring columns, as many as a head has: those of the first head alone."""
    width = DIT["dim_head"]
    angle = torch.arange(len(x))[:, None] * (10000.0 ** (-torch.arange(0, width, 2) / width))[None]
    even, odd = x[:, 0:width:2], x[:, 1:width:2]
    turned = torch.stack([even * angle.cos() - odd * angle.sin(), odd * angle.cos() + even * angle.sin()], -1)
    return torch.cat([turned.reshape(len(x), width), x[:, width:]], 1)


class Transformer(nn.Module):
    """From a spectrogram, its conditions and a time to a slope."""

    def __init__(self):
        super().__init__()
        dim = DIT["dim"]
        self.time_embed = nn.Module()
        self.time_embed.time_mlp = nn.Sequential(nn.Linear(256, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.input_embed = InputEmbedding()
        self.transformer_blocks = nn.ModuleList([Block() for _ in range(DIT["depth"])])
        self.norm_out = Norm(2)
        self.proj_out = nn.Linear(dim, MEL)

    def forward(self, inputs: torch.Tensor, time: float, mask: torch.Tensor) -> torch.Tensor:
        angle = 1000 * time * torch.exp(torch.arange(128) * -(math.log(10000) / 127))
        embedded = self.time_embed.time_mlp(torch.cat([angle.sin(), angle.cos()]))
        x = self.input_embed(inputs)
        for block in self.transformer_blocks:
            x = block(x, embedded, mask)
        scale, shift = self.norm_out(embedded)
        norm = nn.LayerNorm(DIT["dim"], eps=1e-6, elementwise_affine=False)
        return self.proj_out(norm(x) * (1 + scale) + shift)


class Flow(nn.Module):
    """Codes to mel frames, by ten steps of Euler's method."""

    def __init__(self):
        super().__init__()
        self.input_embedding = nn.Embedding(CODES, MEL)
        self.spk_embed_affine_layer = nn.Linear(SPEAKER, MEL)
        self.pre_lookahead_layer = LookAhead()
        self.decoder = nn.Module()
        self.decoder.estimator = Transformer()

    def forward(self, codes: list[int], recording: torch.Tensor, speaker: torch.Tensor, left: int) -> torch.Tensor:
        """Solves all frames at once; a chunk sees those before it, of the response at most `left`."""
        frames = 2 * len(codes)
        mu = self.pre_lookahead_layer(self.input_embedding(torch.tensor(codes))).repeat_interleave(2, 0)
        condition = torch.zeros(frames, MEL)
        condition[: len(recording)] = recording
        voice = self.spk_embed_affine_layer(functional.normalize(speaker, dim=0)).expand(frames, -1)
        chunk = torch.arange(frames) // CHUNK
        seen, own = chunk[None], chunk[:, None]
        mask = (seen <= own) & ((seen < len(recording) // CHUNK) | (seen >= own - left))
        x = torch.tensor(noise(frames))
        times = [1 - math.cos(step / STEPS * math.pi / 2) for step in range(STEPS + 1)]
        nothing = torch.zeros(frames, 3 * MEL)
        for now, then in itertools.pairwise(times):
            guided = self.decoder.estimator(torch.cat([x, condition, mu, voice], 1), now, mask)
            null = self.decoder.estimator(torch.cat([x, nothing], 1), now, mask)
            x = x + (then - now) * ((1 + GUIDANCE) * guided - GUIDANCE * null)
        return x


def causal(conv: nn.Conv1d, x: torch.Tensor) -> torch.Tensor:
    """Applies a convolution to `[channels, rows]`, with zeros before the first row."""
    return conv(functional.pad(x[None], ((conv.kernel_size[0] - 1) * conv.dilation[0], 0)))[0]


class Snake(nn.Module):
    """A snake with one parameter for each channel."""

    def __init__(self, channels: int):
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        alpha = self.alpha[:, None]
        return x + (x * alpha).sin() ** 2 / (alpha + 1e-9)


class ResidualBlock(nn.Module):
    """Pairs of convolutions, each after a snake."""

    def __init__(self, channels: int, kernel: int):
        super().__init__()
        for name, dilations in (("convs1", HIFT["dilations"]), ("convs2", [1] * len(HIFT["dilations"]))):
            convs = [weight_norm(nn.Conv1d(channels, channels, kernel, dilation=d)) for d in dilations]
            setattr(self, name, nn.ModuleList(convs))
        for name in ("activations1", "activations2"):
            setattr(self, name, nn.ModuleList([Snake(channels) for _ in HIFT["dilations"]]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for act1, conv1, act2, conv2 in zip(
            self.activations1, self.convs1, self.activations2, self.convs2, strict=True
        ):
            x = x + causal(conv2, act2(causal(conv1, act1(x))))
        return x


class Pitch(nn.Module):
    """Pitch of frames, computed in double precision."""

    def __init__(self):
        super().__init__()
        width = HIFT["pitch_channels"]
        convs = [weight_norm(nn.Conv1d(MEL if i == 0 else width, width, 4 if i == 0 else 3)) for i in range(5)]
        self.condnet = nn.Sequential(*[layer for conv in convs for layer in (conv, nn.ELU())])
        self.classifier = nn.Linear(width, 1)

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        x = functional.elu(self.condnet[0](functional.pad(mel[None], (0, 3))))[0]
        for conv in self.condnet[2::2]:
            x = functional.elu(causal(conv, x))
        return self.classifier(x.T)[:, 0].abs()


class Hift(nn.Module):
    """Mel frames to samples."""

    def __init__(self):
        super().__init__()
        base, rates = HIFT["base_channels"], HIFT["rates"]
        self.m_source = nn.Module()
        self.m_source.l_linear = nn.Linear(HIFT["harmonics"] + 1, 1)
        self.conv_pre = weight_norm(nn.Conv1d(MEL, base, 5))
        channels = [base >> (level + 1) for level in range(len(rates))]
        self.ups = nn.ModuleList(
            [weight_norm(nn.Conv1d(2 * c, c, k)) for c, k in zip(channels, HIFT["kernels"], strict=True)]
        )
        strides = [math.prod(rates[level + 1 :]) for level in range(len(rates))]
        self.source_downs = nn.ModuleList(
            [nn.Conv1d(N_FFT + 2, c, 2 * s if s > 1 else 1, stride=s) for c, s in zip(channels, strides, strict=True)]
        )
        self.source_resblocks = nn.ModuleList(
            [ResidualBlock(c, k) for c, k in zip(channels, HIFT["source_blocks"], strict=True)]
        )
        self.resblocks = nn.ModuleList([ResidualBlock(c, k) for c in channels for k in HIFT["blocks"]])
        self.conv_post = weight_norm(nn.Conv1d(channels[-1], N_FFT + 2, 7))
        self.f0_predictor = Pitch()

    def pitch(self, mel: torch.Tensor) -> torch.Tensor:
        """Pitch of `[bins, frames]` in Hz."""
        pitch = self.f0_predictor.double()(mel.double())
        self.f0_predictor.float()
        return pitch.float()

    def signal(self, pitch: torch.Tensor, seed: int, response: int) -> torch.Tensor:
        """Signal of the source."""
        frame = math.prod(HIFT["rates"]) * HOP
        number = torch.arange(1, HIFT["harmonics"] + 2)
        turns = torch.cumsum((pitch.double()[:, None] * number / RATE) % 1, 0)
        sines = (2 * math.pi * ((turns * frame) % 1)).sin().float().repeat_interleave(frame, 0) * 0.1
        voiced = (pitch > 10).float().repeat_interleave(frame)[:, None]
        drawn = torch.tensor(source_noise(len(sines), HIFT["harmonics"] + 1, seed, response))
        sines = sines * voiced + (voiced * 0.003 + (1 - voiced) * 0.1 / 3) * drawn
        return self.m_source.l_linear(sines)[:, 0].tanh()

    def forward(self, mel: torch.Tensor, seed: int, response: int) -> torch.Tensor:
        """Samples of `[frames, bins]`."""
        signal = self.signal(self.pitch(mel.T), seed, response)
        window = torch.hann_window(N_FFT)
        spectra = torch.stft(signal, N_FFT, HOP, N_FFT, window, return_complex=True)
        spectra = torch.cat([spectra.real, spectra.imag])
        x = self.conv_pre(functional.pad(mel.T[None], (0, 4)))[0]
        for level, rate in enumerate(HIFT["rates"]):
            x = causal(self.ups[level], functional.leaky_relu(x, 0.1).repeat_interleave(rate, 1))
            if level + 1 == len(HIFT["rates"]):
                x = torch.cat([x[:, 1:2], x], 1)
            down = self.source_downs[level]
            source = down(functional.pad(spectra[None], (down.stride[0] - 1, 0)))[0]
            x = x + self.source_resblocks[level](source)
            blocks = self.resblocks[level * 3 : level * 3 + 3]
            x = sum(block(x) for block in blocks) / 3
        x = causal(self.conv_post, functional.leaky_relu(x))
        magnitude, phase = x[: N_FFT // 2 + 1].exp().clip(max=100), x[N_FFT // 2 + 1 :].sin()
        spectrum = torch.complex(magnitude * phase.cos(), magnitude * phase.sin())
        return torch.istft(spectrum, N_FFT, HOP, N_FFT, window).clamp(-0.99, 0.99)


def noise(frames: int) -> np.ndarray:
    """Normal numbers of the engine for the start of a solve: a function of the frame."""
    return normal(0, 0, np.arange(frames), MEL)


def source_noise(samples: int, sines: int, seed: int, response: int) -> np.ndarray:
    """Random numbers of the engine for the source."""
    step, number = np.meshgrid(np.arange(samples), np.arange(sines), indexing="ij")
    return uniform(seed, response, step, (1 << 34) + number)


@torch.no_grad()
def draw(model: nn.Module, seed: int) -> nn.Module:
    """Draws every parameter, in the order of its name."""
    rng = torch.Generator().manual_seed(seed)
    for name, p in sorted(model.named_parameters()):
        leaf = name.rsplit(".", 1)[-1]
        if leaf == "alpha":
            p.copy_(0.3 + 0.4 * torch.rand(p.shape, generator=rng))
        elif leaf == "original0":
            p.copy_(0.6 + 0.4 * torch.rand(p.shape, generator=rng))
        elif "norm.weight" in name or "layernorm.weight" in name:
            p.copy_(0.7 + 0.6 * torch.rand(p.shape, generator=rng))
        elif p.ndim == 1:
            p.copy_(0.2 * torch.randn(p.shape, generator=rng))
        elif "embed" in name and p.ndim == 2 and "proj" not in name and "mlp" not in name and "affine" not in name:
            p.copy_(torch.randn(p.shape, generator=rng))
        else:
            gain = 3.0 if "decoder.weight" in name else 1.0
            p.copy_(gain * torch.randn(p.shape, generator=rng) / math.sqrt(p[0].numel()))
    return model.eval()
