"""A derivation of Dynin-Omni in torch, written from its description, with the names of the published weights.

The language model is transformers' Llama without its causal mask. Refinement of a canvas and U-VITS are written out.
Noise is given.
"""

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

# The language model.
WIDTH, HEADS, LAYERS, INNER, THETA, EPSILON = 32, 2, 3, 48, 500_000.0, 1e-5
TEXT_ROWS, IMAGE_CODES, UNITS = 304, 8, 64
FIRST_UNIT, ROWS = TEXT_ROWS + IMAGE_CODES, TEXT_ROWS + IMAGE_CODES + UNITS
# Refinement.
BLOCK, CANVAS, STEPS, GUIDANCE, TEMPERATURE = 8, 24, 9, 2.5, 1.0
# Symbols of the codec before its units.
SYMBOLS = 178
VITS: dict[str, Any] = {
    "inter_channels": 16,
    "hidden_channels": 16,
    "filter_channels": 24,
    "n_heads": 2,
    "n_layers": 2,
    "kernel_size": 3,
    "resblock": "1",
    "resblock_kernel_sizes": [3, 5],
    "resblock_dilation_sizes": [[1, 3, 5], [1, 3, 5]],
    "upsample_rates": [8, 4, 2],
    "upsample_initial_channel": 32,
    "upsample_kernel_sizes": [16, 8, 4],
    "gin_channels": 12,
    "use_ref_enc": True,
}
STYLES = ["gender-female_emotion-neutral_speed-normal_pitch-normal", "gender-male_emotion-happy_speed-fast_pitch-low"]
REACH, BINS, BOUND, LEAST = 4, 10, 5.0, 1e-3
NOISE, DURATION_NOISE = 0.667, 0.8


def llama() -> LlamaForCausalLM:
    """The language model: every position sees all others."""
    config = LlamaConfig(
        vocab_size=ROWS,
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        rms_norm_eps=EPSILON,
        rope_parameters={"rope_type": "default", "rope_theta": THETA},
        attn_implementation="eager",
    )
    return LlamaForCausalLM(config).eval()


def logits_of(model: LlamaForCausalLM, ids: torch.Tensor) -> torch.Tensor:
    """Logits of all positions of a canvas behind its prompt."""
    open_mask = torch.zeros(1, 1, len(ids), len(ids))
    return model(input_ids=ids[None], attention_mask=open_mask, use_cache=False).logits[0]


def transfers(masked: int, steps: int) -> list[int]:
    """Positions that each step of a block settles."""
    return [masked // steps + (step < masked % steps) for step in range(steps)]


class Canvas:
    """Refinement of the blocks of a canvas, with a pair of passes for guidance in each step."""

    def __init__(self, model, prompt: list[int], mask: int, ends: tuple[int, int], draw):
        self.ids = torch.tensor(prompt + [mask] * CANVAS)
        self.start, self.lead = len(prompt), float("inf")
        self.choices: list[list[int]] = []
        self.first: list[torch.Tensor] = []
        self.model, self.mask, self.draw, self.step = model, mask, draw, 0
        self.allowed = [*range(FIRST_UNIT, ROWS), *ends]
        self.null = self.seen(self.ids)
        steps = max(1, STEPS // math.ceil(CANVAS / BLOCK))
        for block in range(math.ceil(CANVAS / BLOCK)):
            self.refine(range(block * BLOCK, min((block + 1) * BLOCK, CANVAS)), steps)

    def seen(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits of the canvas over units and ends."""
        return logits_of(self.model, ids)[self.start :, self.allowed]

    def refine(self, places: range, steps: int) -> None:
        settled: dict[int, int] = {}
        for step, count in enumerate(transfers(len(places), steps)):
            null = self.ids.clone()
            null[self.start :] = self.mask
            unguided = self.seen(null)
            logits = (unguided + (GUIDANCE + 1) * (self.seen(self.ids) - unguided))[list(places)]
            if step == 0:
                self.first.append(logits)
            chances = (logits / TEMPERATURE).softmax(-1)
            found = {}
            for row, place in enumerate(places):
                if place in settled:
                    continue
                reached = chances[row].double().cumsum(0)
                number = float(self.draw(self.step, place))
                choice = min(int((reached <= number).sum()), len(self.allowed) - 1)
                self.lead = min(self.lead, float((reached - number).abs().min()))
                found[place] = (choice, float(chances[row, choice]))
            order = sorted(found, key=lambda place: -found[place][1])
            if count < len(order):
                self.lead = min(self.lead, found[order[count - 1]][1] - found[order[count]][1])
            for place in order[:count]:
                settled[place] = found[place][0]
                self.ids[self.start + place] = self.allowed[settled[place]]
            self.step += 1
        self.choices.append([settled[place] for place in places])

    def units(self) -> list[list[int]]:
        """Units of each block, up to the first end."""
        spoken: list[list[int]] = []
        for block in self.choices:
            ended = [at for at, choice in enumerate(block) if choice >= UNITS]
            spoken.append(block[: ended[0]] if ended else block)
            if ended:
                break
        return spoken


class Normed(nn.Module):
    """A convolution whose weight is a direction and a length."""

    def __init__(self, shape: tuple[int, int, int], bias: int):
        super().__init__()
        self.weight_v = nn.Parameter(torch.zeros(shape))
        self.weight_g = nn.Parameter(torch.zeros(shape[0], 1, 1))
        self.bias = nn.Parameter(torch.zeros(bias))

    def weight(self) -> torch.Tensor:
        return self.weight_v * (self.weight_g / self.weight_v.norm(dim=(1, 2), keepdim=True))


class Conv(Normed):
    """A centred convolution with a normed weight."""

    def __init__(self, read: int, made: int, taps: int, dilation: int = 1):
        super().__init__((made, read, taps), made)
        self.dilation = dilation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pad = self.dilation * (self.weight_v.shape[-1] - 1) // 2
        return functional.conv1d(x, self.weight(), self.bias, padding=pad, dilation=self.dilation)


class Upsample(Normed):
    """A transposed convolution with a normed weight: `rate` columns for each."""

    def __init__(self, read: int, made: int, taps: int, rate: int):
        super().__init__((read, made, taps), made)
        self.rate = rate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pad = (self.weight_v.shape[-1] - self.rate) // 2
        return functional.conv_transpose1d(x, self.weight(), self.bias, stride=self.rate, padding=pad)


class ChannelNorm(nn.Module):
    """Layer norm over channels."""

    def __init__(self, channels: int):
        super().__init__()
        self.GAMMA = nn.Parameter(torch.zeros(channels))
        self.BETA = nn.Parameter(torch.zeros(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x.mT, self.GAMMA.shape, self.GAMMA, self.BETA, 1e-5).mT


class RelativeAttention(nn.Module):
    """Attention with learnt keys and values of the distances up to `REACH`."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.conv_q, self.conv_k, self.conv_v, self.conv_o = (nn.Conv1d(width, width, 1) for _ in range(4))
        self.emb_rel_k = nn.Parameter(torch.zeros(1, 2 * REACH + 1, width // heads))
        self.emb_rel_v = nn.Parameter(torch.zeros(1, 2 * REACH + 1, width // heads))
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        queries, keys, values = (
            conv(x)[0].unflatten(0, (self.heads, -1)).mT for conv in (self.conv_q, self.conv_k, self.conv_v)
        )
        count = x.shape[-1]
        apart = torch.arange(count)[None, :] - torch.arange(count)[:, None]
        near = (apart.abs() <= REACH).float()
        index = (apart + REACH).clamp(0, 2 * REACH)
        of_keys = self.emb_rel_k[0][index] * near[..., None]
        of_values = self.emb_rel_v[0][index] * near[..., None]
        scores = queries @ keys.mT + torch.einsum("hqd,qkd->hqk", queries, of_keys)
        weights = (scores / math.sqrt(queries.shape[-1])).softmax(-1)
        found = weights @ values + torch.einsum("hqk,qkd->hqd", weights, of_values)
        return self.conv_o(found.mT.flatten(0, 1)[None])


class FeedForward(nn.Module):
    """Two convolutions with a positive part between them."""

    def __init__(self, width: int, inner: int, taps: int):
        super().__init__()
        self.conv_1 = nn.Conv1d(width, inner, taps, padding=taps // 2)
        self.conv_2 = nn.Conv1d(inner, width, taps, padding=taps // 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv_2(self.conv_1(x).relu())


class Encoder(nn.Module):
    """Layers of attention and convolutions, each with its norm behind it."""

    def __init__(self, width: int, heads: int, inner: int, taps: int, layers: int):
        super().__init__()
        self.attn_layers = nn.ModuleList(RelativeAttention(width, heads) for _ in range(layers))
        self.norm_layers_1 = nn.ModuleList(ChannelNorm(width) for _ in range(layers))
        self.ffn_layers = nn.ModuleList(FeedForward(width, inner, taps) for _ in range(layers))
        self.norm_layers_2 = nn.ModuleList(ChannelNorm(width) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        layers = (self.attn_layers, self.norm_layers_1, self.ffn_layers, self.norm_layers_2)
        for attention, first, inner, second in zip(*layers, strict=True):
            x = first(x + attention(x))
            x = second(x + inner(x))
        return x


class UnitEncoder(nn.Module):
    """Units to rows, and the means and logarithms of deviations of their frames."""

    def __init__(self):
        super().__init__()
        width = VITS["hidden_channels"]
        self.emb = nn.Embedding(SYMBOLS + UNITS, width)
        sizes = (VITS["n_heads"], VITS["filter_channels"], VITS["kernel_size"], VITS["n_layers"])
        self.encoder = Encoder(width, *sizes)
        self.proj = nn.Conv1d(width, 2 * VITS["inter_channels"], 1)

    def forward(self, units: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        ids = torch.tensor(units) + SYMBOLS
        x = self.encoder((self.emb(ids) * math.sqrt(self.emb.embedding_dim)).mT[None])
        return x, self.proj(x)


class Separable(nn.Module):
    """Three dilated convolutions of each channel alone, each followed by one over channels."""

    def __init__(self, width: int, taps: int):
        super().__init__()
        each = range(3)
        self.convs_sep = nn.ModuleList(
            nn.Conv1d(width, width, taps, groups=width, dilation=taps**at, padding=taps**at * (taps - 1) // 2)
            for at in each
        )
        self.convs_1x1 = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in each)
        self.norms_1 = nn.ModuleList(ChannelNorm(width) for _ in each)
        self.norms_2 = nn.ModuleList(ChannelNorm(width) for _ in each)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for at in range(3):
            y = functional.gelu(self.norms_1[at](self.convs_sep[at](x)))
            x = x + functional.gelu(self.norms_2[at](self.convs_1x1[at](y)))
        return x


class SplineFlow(nn.Module):
    """Moves one of two numbers of a unit by a spline that depends on the other one and on the unit's row."""

    def __init__(self, width: int, taps: int):
        super().__init__()
        self.pre = nn.Conv1d(1, width, 1)
        self.convs = Separable(width, taps)
        self.proj = nn.Conv1d(width, 3 * BINS - 1, 1)

    def undo(self, z: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        h = self.proj(self.convs(self.pre(z[:, :1]) + rows))[0].T
        scale = math.sqrt(self.pre.out_channels)
        moved = [
            unspline(float(value), h[at, :BINS] / scale, h[at, BINS : 2 * BINS] / scale, h[at, 2 * BINS :])
            for at, value in enumerate(z[0, 1])
        ]
        return torch.stack([z[0, 0], torch.tensor(moved)])[None]


def edges(weights: torch.Tensor) -> torch.Tensor:
    """Edges of bins from -`BOUND` to `BOUND`."""
    shares = LEAST + (1 - LEAST * BINS) * weights.double().softmax(-1)
    inner = 2 * BOUND * shares.cumsum(-1)[:-1] - BOUND
    ends = torch.tensor([-BOUND, BOUND], dtype=torch.double)
    return torch.cat([ends[:1], inner, ends[1:]])


def unspline(value: float, widths: torch.Tensor, heights: torch.Tensor, slopes: torch.Tensor) -> float:
    """The number that a monotone spline of quotients of quadratics maps to `value`."""
    if not -BOUND <= value <= BOUND:
        return value
    x, y = edges(widths), edges(heights)
    slope = torch.cat([torch.ones(1), LEAST + functional.softplus(slopes.double()), torch.ones(1)])
    at = min(int((y[1:] <= value).sum()), BINS - 1)
    wide, high, rise = float(x[at + 1] - x[at]), float(y[at + 1] - y[at]), value - float(y[at])
    mean, left, right = high / wide, float(slope[at]), float(slope[at + 1])
    bend = left + right - 2 * mean
    a, b, c = rise * bend + high * (mean - left), high * left - rise * bend, -mean * rise
    return 2 * c / (-b - math.sqrt(b * b - 4 * a * c)) * wide + float(x[at])


class Affine(nn.Module):
    """Scale and shift of both numbers."""

    def __init__(self):
        super().__init__()
        self.m = nn.Parameter(torch.zeros(2, 1))
        self.logs = nn.Parameter(torch.zeros(2, 1))


class Durations(nn.Module):
    """Logarithms of durations in frames, from noise of two numbers a unit."""

    def __init__(self):
        super().__init__()
        width = VITS["hidden_channels"]
        self.pre, self.proj = nn.Conv1d(width, width, 1), nn.Conv1d(width, width, 1)
        self.cond = nn.Conv1d(VITS["gin_channels"], width, 1)
        self.convs = Separable(width, 3)
        # The first of the four is not used to draw; nor are the two between, which exchange the numbers.
        self.flows = nn.ModuleDict({"0": Affine(), **{str(at): SplineFlow(width, 3) for at in (3, 5, 7)}})

    def forward(self, x: torch.Tensor, style: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        rows = self.proj(self.convs(self.pre(x) + self.cond(style)))
        z = noise * DURATION_NOISE
        for at in (7, 5, 3):
            z = self.flows[str(at)].undo(z.flip(1), rows)
        last = self.flows["0"]
        return ((z.flip(1) - last.m) * torch.exp(-last.logs))[0, 0]


class Waves(nn.Module):
    """Gated convolutions with a style."""

    def __init__(self, width: int, layers: int):
        super().__init__()
        self.cond_layer = Conv(VITS["gin_channels"], 2 * width * layers, 1)
        self.in_layers = nn.ModuleList(Conv(width, 2 * width, 5) for _ in range(layers))
        made = [2 * width] * (layers - 1) + [width]
        self.res_skip_layers = nn.ModuleList(Conv(width, count, 1) for count in made)

    def forward(self, x: torch.Tensor, style: torch.Tensor) -> torch.Tensor:
        width = x.shape[1]
        styles = self.cond_layer(style).split(2 * width, 1)
        total = torch.zeros_like(x)
        for gate, out, own in zip(self.in_layers, self.res_skip_layers, styles, strict=True):
            a, b = (gate(x) + own).chunk(2, 1)
            y = out(a.tanh() * b.sigmoid())
            if y.shape[1] == 2 * width:
                x = x + y[:, :width]
                y = y[:, width:]
            total = total + y
        return total


class Coupling(nn.Module):
    """Takes from one half of the channels a function of the other half."""

    def __init__(self, channels: int, width: int):
        super().__init__()
        self.pre = nn.Conv1d(channels // 2, width, 1)
        self.enc = Waves(width, 4)
        self.post = nn.Conv1d(width, channels // 2, 1)

    def undo(self, x: torch.Tensor, style: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, 1)
        return torch.cat([first, second - self.post(self.enc(self.pre(first), style))], 1)


class Flow(nn.Module):
    """Four couplings, with all channels reversed between them."""

    def __init__(self):
        super().__init__()
        sizes = (VITS["inter_channels"], VITS["hidden_channels"])
        self.flows = nn.ModuleDict({str(at): Coupling(*sizes) for at in (0, 2, 4, 6)})

    def undo(self, x: torch.Tensor, style: torch.Tensor) -> torch.Tensor:
        for at in (6, 4, 2, 0):
            x = self.flows[str(at)].undo(x.flip(1), style)
        return x


class Residual(nn.Module):
    """Pairs of convolutions, the first of each dilated."""

    def __init__(self, channels: int, taps: int, dilations: list[int]):
        super().__init__()
        self.convs1 = nn.ModuleList(Conv(channels, channels, taps, dilation) for dilation in dilations)
        self.convs2 = nn.ModuleList(Conv(channels, channels, taps) for _ in dilations)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for first, second in zip(self.convs1, self.convs2, strict=True):
            x = x + second(functional.leaky_relu(first(functional.leaky_relu(x, 0.1)), 0.1))
        return x


class Generator(nn.Module):
    """Frames to samples."""

    def __init__(self):
        super().__init__()
        channels, kernels = VITS["upsample_initial_channel"], VITS["resblock_kernel_sizes"]
        self.conv_pre = nn.Conv1d(VITS["inter_channels"], channels, 7, padding=3)
        self.cond = nn.Conv1d(VITS["gin_channels"], channels, 1)
        self.ups, self.resblocks = nn.ModuleList(), nn.ModuleList()
        for rate, taps in zip(VITS["upsample_rates"], VITS["upsample_kernel_sizes"], strict=True):
            self.ups.append(Upsample(channels, channels // 2, taps, rate))
            channels //= 2
            for kernel, dilations in zip(kernels, VITS["resblock_dilation_sizes"], strict=True):
                self.resblocks.append(Residual(channels, kernel, dilations))
        self.conv_post = nn.Conv1d(channels, 1, 7, padding=3, bias=False)

    def forward(self, x: torch.Tensor, style: torch.Tensor) -> torch.Tensor:
        x = self.conv_pre(x) + self.cond(style)
        count = len(VITS["resblock_kernel_sizes"])
        for level, up in enumerate(self.ups):
            x = up(functional.leaky_relu(x, 0.1))
            blocks = self.resblocks[level * count : (level + 1) * count]
            x = torch.stack([block(x) for block in blocks]).sum(0) / count
        return self.conv_post(functional.leaky_relu(x, 0.01)).tanh()[0, 0]


class Codec(nn.Module):
    """Units to samples in a style."""

    def __init__(self):
        super().__init__()
        self.decoder = nn.ModuleDict(
            {"enc_p": UnitEncoder(), "dp": Durations(), "flow": Flow(), "dec": Generator()},
        )
        self.style_embedding = nn.Embedding(len(STYLES), VITS["gin_channels"])

    def spoken(self, units: list[int], style: int, duration_noise, frame_noise) -> dict[str, torch.Tensor]:
        """Results of all parts for the units of a block; `frame_noise` gives noise for a number of frames."""
        g = self.style_embedding(torch.tensor([style]))[..., None]
        rows, stats = self.decoder["enc_p"](units)
        logs = self.decoder["dp"](rows, g, duration_noise[None])
        # Random weights give some units endless durations; the caller refuses them.
        frames = torch.exp(logs.clamp_max(3.0)).ceil().long()
        mean, deviation = stats[0].repeat_interleave(frames, 1).chunk(2)
        latents = mean + frame_noise(int(frames.sum())).T * torch.exp(deviation) * NOISE
        latents = self.decoder["flow"].undo(latents[None], g)
        samples = self.decoder["dec"](latents, g)
        return {"stats": stats[0].T, "logs": logs, "frames": frames, "latents": latents[0].T, "samples": samples}


def draw(module: nn.Module, seed: int) -> None:
    """Draws all parameters, as bf16 stores them."""
    generator = torch.Generator().manual_seed(seed)
    for name, p in module.named_parameters():
        fan = max(1, p[0].numel()) if p.dim() > 1 else 1
        numbers = torch.randn(p.shape, generator=generator)
        if name.endswith(("norm.weight", "layernorm.weight", "GAMMA")):
            numbers = 1 + 0.1 * numbers
        elif name.endswith("weight_g"):
            numbers = 1 + 0.2 * numbers
        elif name.endswith("flows.0.m"):
            numbers = torch.tensor([[-2.9], [0.0]]) + 0.1 * numbers
        elif name.endswith("flows.0.logs"):
            numbers = 0.9 + 0.1 * numbers
        elif "conv_post" in name:
            numbers = 0.05 * numbers
        elif "emb" in name or "wte" in name:
            numbers = 0.6 * numbers
        elif p.dim() > 1:
            numbers = 1.2 * numbers / math.sqrt(fan)
        else:
            numbers = 0.1 * numbers
        p.data = numbers.to(torch.bfloat16).float()
