"""A derivation of MiMo-Audio in torch, written from its description, with the names of the published weights.

The reference needs a GPU's attention kernels. Here the three stacks over text and codes are transformers' Qwen2; the
tokenizer of sound is written out, whole windows at once.
"""

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import Qwen2Config, Qwen2Model

VOCABULARY = 304
HIDDEN = 32
FRAMES = 4
CODEBOOKS = [33, 33, 17, 17, 9, 9, 9, 9]
DELAYS = [0, 1, 2, 3, 4, 5, 6, 7]
LOCAL = 16
MODEL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
    "rope_theta": 640000,
    "tie_word_embeddings": False,
    "group_size": FRAMES,
    "audio_channels": len(CODEBOOKS),
    "speech_vocab_size": "-".join(map(str, CODEBOOKS)),
    "speech_zeroemb_idx": "-".join(str(size - 1) for size in CODEBOOKS),
    "delay_pattern": "-".join(map(str, DELAYS)),
    "local_dim": LOCAL,
    "local_layers": 2,
    "local_attn_heads": 2,
    "local_ffn_dim": 24,
    "input_local_layers": 2,
    "input_full_attention": True,
}
WIDTH = 24
BINS = 12
N_FFT, HOP, RATE = 120, 30, 24000
TOKENIZER: dict[str, Any] = {
    "sampling_rate": RATE,
    "nfft": N_FFT,
    "window_size": N_FFT,
    "hop_length": HOP,
    "n_mels": BINS,
    "fmin": 0,
    "fmax": None,
    "d_model": WIDTH,
    "kernel_size": 3,
    "stride_size": 2,
    "avg_pooler": 2,
    "activation_function": "gelu",
    "ln_type": "LayerNorm",
    "encoder_layers": 3,
    "encoder_skip_layer_id": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "encoder_causal": False,
    "encoder_attn_window_size": [-1, -1],
    "decoder_layers": 2,
    "decoder_attention_heads": 3,
    "decoder_ffn_dim": 32,
    "decoder_kernel_size": 3,
    "decoder_stride_size": 2,
    "decoder_causal": True,
    "decoder_attn_window_size": [-1, -1],
    "vocoder_dim": 16,
    "vocoder_intermediate_dim": 24,
    "vocoder_num_layers": 2,
    "vocoder_attention_heads": 2,
    "vocoder_attn_window_size": [6, 3],
    "vocoder_padding": "same",
    # A list that is too short repeats its last entry.
    "codebook_size": [size - 1 for size in CODEBOOKS[:5]],
    "num_quantizers": 10,
    "rope_theta": 10000,
    "rope_type": "default",
}


def stack(width: int, layers: int, heads: tuple[int, int], inner: int) -> Qwen2Model:
    """Layers of Qwen2 without a table."""
    config = Qwen2Config(
        vocab_size=1,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads[0],
        num_key_value_heads=heads[1],
        head_dim=width // heads[0],
        intermediate_size=inner,
        rms_norm_eps=MODEL["rms_norm_eps"],
        rope_parameters={"rope_type": "default", "rope_theta": float(MODEL["rope_theta"])},
        max_position_embeddings=MODEL["max_position_embeddings"],
        attn_implementation="eager",
    )
    return Qwen2Model(config)


class MiMoAudio(nn.Module):
    """The language model with its patch encoder and the decoder of a patch's codes."""

    def __init__(self):
        super().__init__()
        heads = MODEL["num_attention_heads"], MODEL["num_key_value_heads"]
        self.model = stack(HIDDEN, MODEL["num_hidden_layers"], heads, MODEL["intermediate_size"])
        self.model.embed_tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.lm_head = nn.Linear(HIDDEN, VOCABULARY, bias=False)
        local = MODEL["local_attn_heads"], MODEL["local_attn_heads"]
        self.local_transformer = stack(LOCAL, MODEL["local_layers"], local, MODEL["local_ffn_dim"])
        self.input_local_transformer = stack(LOCAL, MODEL["input_local_layers"], local, 4 * LOCAL)
        self.local_transformer.embed_tokens = self.input_local_transformer.embed_tokens = None
        self.local_transformer_lm_heads = nn.ModuleList(nn.Linear(LOCAL, ids, bias=False) for ids in CODEBOOKS)
        self.speech_embeddings = nn.ModuleList(nn.Embedding(ids, LOCAL) for ids in CODEBOOKS)
        self.speech_group_downcast = nn.Linear(FRAMES * LOCAL, HIDDEN, bias=False)
        self.hidden_states_downcast = nn.Linear(HIDDEN, LOCAL, bias=False)

    def patch(self, codes: torch.Tensor) -> torch.Tensor:
        """Row of a patch, [frames, codebooks]: every frame sees all of them."""
        x = sum(table(codes[:, at]) for at, table in enumerate(self.speech_embeddings))
        everything = torch.zeros(1, 1, FRAMES, FRAMES)
        x = self.input_local_transformer(inputs_embeds=x[None], attention_mask=everything).last_hidden_state
        return self.speech_group_downcast(x.reshape(-1))

    def rows(self, positions: list[int | torch.Tensor]) -> torch.Tensor:
        """Input of positions: a text id, or the codes of a patch."""
        embedded = [
            self.model.embed_tokens.weight[position] if isinstance(position, int) else self.patch(position)
            for position in positions
        ]
        return torch.stack(embedded)

    def hidden(self, positions: list[int | torch.Tensor]) -> torch.Tensor:
        """Rows after the last norm."""
        return self.model(inputs_embeds=self.rows(positions)[None]).last_hidden_state[0]

    def codes(self, hidden: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Likeliest codes of a patch, [frames, codebooks], and the logits in the order of the draws."""
        drawn = torch.zeros(FRAMES, len(CODEBOOKS), dtype=torch.long)
        inputs, logits = [self.hidden_states_downcast(hidden)], []
        for step in range(FRAMES + max(DELAYS)):
            x = self.local_transformer(inputs_embeds=torch.stack(inputs)[None]).last_hidden_state[0, -1]
            following = torch.zeros(LOCAL)
            for at, delay in enumerate(DELAYS):
                if not delay <= step < delay + FRAMES:
                    continue
                scores = self.local_transformer_lm_heads[at](x)
                logits.append(scores)
                code = scores[:-1].argmax()
                drawn[step - delay, at] = code
                following = following + self.speech_embeddings[at].weight[code]
            inputs.append(following)
        return drawn, logits


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.q_proj, self.v_proj = nn.Linear(width, width), nn.Linear(width, width)
        self.k_proj, self.out_proj = nn.Linear(width, width, bias=False), nn.Linear(width, width)

    def forward(self, x: torch.Tensor, reach: tuple[int, int]) -> torch.Tensor:
        """Attention of rows to those at most so far before and after; -1 for all."""
        count, width = x.shape
        head = width // self.heads
        q, k, v = (p(x).view(count, self.heads, head).transpose(0, 1) for p in (self.q_proj, self.k_proj, self.v_proj))
        frequencies = TOKENIZER["rope_theta"] ** (-torch.arange(0, head, 2) / head)
        angles = (torch.arange(count)[:, None] * frequencies).repeat(1, 2)

        def rotated(of: torch.Tensor) -> torch.Tensor:
            first, second = of.chunk(2, dim=-1)
            return of * angles.cos() + torch.cat((-second, first), dim=-1) * angles.sin()

        ahead = torch.arange(count)[None] - torch.arange(count)[:, None]
        seen = torch.ones(count, count, dtype=torch.bool)
        if reach[0] >= 0:
            seen &= ahead >= -reach[0]
        if reach[1] >= 0:
            seen &= ahead <= reach[1]
        scores = rotated(q) @ rotated(k).transpose(1, 2) / math.sqrt(head)
        scores = scores.masked_fill(~seen, -torch.inf)
        return self.out_proj((scores.softmax(-1) @ v).transpose(0, 1).reshape(count, width))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, inner: int):
        super().__init__()
        self.self_attn = Attention(width, heads)
        self.self_attn_layer_norm, self.final_layer_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.fc1, self.fc2 = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: torch.Tensor, reach: tuple[int, int]) -> torch.Tensor:
        x = x + self.self_attn(self.self_attn_layer_norm(x), reach)
        return x + self.fc2(functional.gelu(self.fc1(self.final_layer_norm(x))))


def layers(kind: str) -> nn.ModuleList:
    heads, inner = TOKENIZER[f"{kind}_attention_heads"], TOKENIZER[f"{kind}_ffn_dim"]
    return nn.ModuleList(Layer(WIDTH, heads, inner) for _ in range(TOKENIZER[f"{kind}_layers"]))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(BINS, WIDTH, 3, padding=1)
        self.conv2 = nn.Conv1d(WIDTH, WIDTH, 3, stride=2, padding=1)
        self.layers = layers("encoder")
        self.layer_norm, self.down_sample_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.down_sample_layer = nn.Sequential(nn.Conv1d(WIDTH, WIDTH, 2, 2, bias=False))
        self.quantizer = nn.Module()
        self.quantizer.vq = nn.Module()
        self.quantizer.vq.layers = nn.ModuleList()
        sizes = TOKENIZER["codebook_size"]
        for at in range(TOKENIZER["num_quantizers"]):
            quantizer = nn.Module()
            quantizer._codebook = nn.Module()
            quantizer._codebook.embed = nn.Parameter(torch.zeros(sizes[min(at, len(sizes) - 1)], WIDTH))
            self.quantizer.vq.layers.append(quantizer)

    def entries(self, at: int) -> torch.Tensor:
        return self.quantizer.vq.layers[at]._codebook.embed

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        """Rows before the quantizer, of mel frames [frames, bins]."""
        x = functional.gelu(self.conv1(mel.T[None]))
        x = functional.gelu(self.conv2(x))[0].T
        kept = None
        for at, layer in enumerate(self.layers):
            x = layer(x, (-1, -1))
            if at + 1 == TOKENIZER["encoder_skip_layer_id"]:
                kept = x
        x = self.layer_norm(x + kept)
        x = functional.pad(x, (0, 0, 0, len(x) % 2))
        return self.down_sample_norm(functional.gelu(self.down_sample_layer(x.T[None]))[0].T)

    def quantize(self, rows: torch.Tensor) -> tuple[torch.Tensor, float]:
        """Codes of the first codebooks, [frames, codebooks], and the narrowest choice."""
        rest, codes, lead = rows, [], math.inf
        for at in range(len(CODEBOOKS)):
            distances = (rest[:, None] - self.entries(at)[None]).square().sum(-1)
            two = distances.topk(2, largest=False).values
            lead = min(lead, float((two[:, 1] - two[:, 0]).min()))
            codes.append(distances.argmin(-1))
            rest = rest - self.entries(at)[codes[-1]]
        return torch.stack(codes, dim=-1), lead

    def embed(self, codes: torch.Tensor) -> torch.Tensor:
        return sum(self.entries(at)[codes[:, at]] for at in range(codes.shape[1]))


class Upsample(nn.Module):
    """A transposed convolution, and a norm over all of its result; then the rows after the last input's are cut."""

    def __init__(self, into: int, out: int, kernel: int):
        super().__init__()
        self.conv, self.norm = nn.ConvTranspose1d(into, out, kernel, 2), nn.GroupNorm(1, out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x.T[None]))[0].T[: 2 * len(x)]


class Vocoder(nn.Module):
    def __init__(self):
        super().__init__()
        width, heads = TOKENIZER["vocoder_dim"], TOKENIZER["vocoder_attention_heads"]
        self.embeddings = nn.Linear(BINS, width, bias=False)
        self.layers = nn.ModuleList(
            Layer(width, heads, TOKENIZER["vocoder_intermediate_dim"]) for _ in range(TOKENIZER["vocoder_num_layers"])
        )
        self.layer_norm = nn.LayerNorm(width)
        self.head = nn.Module()
        self.head.out = nn.Linear(width, N_FFT + 2)

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        x = self.embeddings(mel)
        for layer in self.layers:
            x = layer(x, tuple(TOKENIZER["vocoder_attn_window_size"]))
        magnitudes, angles = self.head.out(self.layer_norm(x)).chunk(2, dim=-1)
        spectra = torch.polar(magnitudes.exp().clamp(max=100.0), angles)
        window = torch.hann_window(N_FFT)
        sound, weight = torch.zeros(len(x) * HOP + N_FFT - HOP), torch.zeros(len(x) * HOP + N_FFT - HOP)
        for at, frame in enumerate(torch.fft.irfft(spectra, N_FFT) * window):
            sound[at * HOP : at * HOP + N_FFT] += frame
            weight[at * HOP : at * HOP + N_FFT] += window.square()
        cut = (N_FFT - HOP) // 2
        return (sound / weight.clamp(min=1e-11))[cut : cut + len(x) * HOP]


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.dconv1, self.dconv2 = Upsample(WIDTH, WIDTH, 2), Upsample(WIDTH, BINS, 3)
        self.layers, self.layer_norm = layers("decoder"), nn.LayerNorm(WIDTH)
        self.vocoder = Vocoder()

    def forward(self, embedded: torch.Tensor) -> torch.Tensor:
        x = self.dconv1(embedded)
        for layer in self.layers:
            x = layer(x, (-1, 0))
        return self.vocoder(self.dconv2(self.layer_norm(x)))


class Tokenizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()

    def mel(self, audio: torch.Tensor) -> torch.Tensor:
        """Logarithms of magnitudes in HTK's bands, [frames, bins]."""
        spectra = torch.stft(audio, N_FFT, HOP, window=torch.hann_window(N_FFT), return_complex=True).abs()
        top = 2595 * math.log10(1 + RATE / 2 / 700)
        edges = 700 * (10 ** (torch.linspace(0, top, BINS + 2, dtype=torch.float64) / 2595) - 1)
        hertz = torch.linspace(0, RATE / 2, N_FFT // 2 + 1, dtype=torch.float64)
        rising = (hertz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
        falling = (edges[2:, None] - hertz) / (edges[2:] - edges[1:-1])[:, None]
        filters = torch.minimum(rising, falling).clamp(min=0).float()
        return (filters @ spectra).clamp(min=1e-7).log().T.contiguous()

    def decode(self, codes: torch.Tensor) -> torch.Tensor:
        """Samples of codes, [frames, codebooks], in one decode."""
        return self.decoder(self.encoder.embed(codes))

    def decode_windows(self, codes: torch.Tensor, left: int, right: int, new: int) -> torch.Tensor:
        """Samples as the reference streams: each window has `new` codes and up to `left` before them, and its last
        `right` codes are heard in the next one; the last window is heard to its end."""
        sound, kept, given, seen = [], 0, 0, 0
        samples = 4 * HOP
        while len(codes) - seen >= new:
            seen += new
            window = self.decode(codes[kept:seen])
            if seen - kept > right:
                sound.append(window[(given - kept) * samples : (seen - right - kept) * samples])
                given = seen - right
            kept = max(seen - left, 0)
        sound.append(self.decode(codes[kept:])[(given - kept) * samples :])
        return torch.cat(sound)


@torch.no_grad()
def draw(model: nn.Module, seed: int) -> nn.Module:
    """Draws every parameter, in the order of its name, at scales at which each one matters."""
    rng = torch.Generator().manual_seed(seed)
    for name, p in sorted(model.named_parameters()):
        norm = "norm" in name and name.endswith("weight")
        if norm:
            p.copy_(0.7 + 0.6 * torch.rand(p.shape, generator=rng))
        elif "q_proj.bias" in name or "k_proj.bias" in name:
            p.copy_(0.6 * torch.randn(p.shape, generator=rng))
        elif p.ndim == 1:
            p.copy_(0.3 * torch.randn(p.shape, generator=rng))
        elif "embed_tokens" in name or "speech_embeddings" in name or "_codebook" in name:
            p.copy_((0.6 if "speech" in name else 1.0) * torch.randn(p.shape, generator=rng))
        else:
            gain = (
                6.0 if "lm_head" in name else 3.0 if "head" in name else 1.5 if "proj" in name or "fc2" in name else 1.0
            )
            inputs = p.shape[0] if "dconv" in name else p[0].numel()
            p.copy_(gain * torch.randn(p.shape, generator=rng) / math.sqrt(inputs))
        p.copy_(p.to(torch.bfloat16).float())
    return model.eval()
