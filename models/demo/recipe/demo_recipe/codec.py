"""The codec: an encoder that is needed in training only, a residual quantizer, and the reference's own code2wav as decoder."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeCode2Wav

from . import config
from .config import CODEBOOKS, CODES
from .snake import quicken

WIDTH = config.code2wav().hidden_size
PHONEMES = 128  # classes of the auxiliary head, more than there are


class Encoder(nn.Module):
    """Features `[batch, frames * 16, features]` to one vector a frame `[batch, frames, width]`; sees about a frame each way."""

    def __init__(self, features: int, channels: int = 256) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv1d(features, channels, 5, padding=2), nn.GELU()]
        for _ in range(4):  # each halves the rate
            layers += [
                nn.Conv1d(channels, channels, 4, stride=2, padding=1),
                nn.GELU(),
                nn.Conv1d(channels, channels, 3, padding=1),
                nn.GELU(),
            ]
        self.layers = nn.Sequential(*layers, nn.Conv1d(channels, WIDTH, 1))

    def forward(self, features: Tensor) -> Tensor:
        return self.layers(features.transpose(1, 2)).transpose(1, 2)


class Quantizer(nn.Module):
    """Residual vector quantization with codebooks that follow a moving average of what they stand for."""

    DECAY = 0.98
    DEAD = 0.02  # a code used less than this much a step, on average, is moved to a vector of the batch

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("codes", torch.zeros(CODEBOOKS, CODES, WIDTH))
        self.register_buffer("sums", torch.zeros(CODEBOOKS, CODES, WIDTH))
        self.register_buffer("counts", torch.ones(CODEBOOKS, CODES))
        self.register_buffer("started", torch.zeros((), dtype=torch.bool))

    def forward(self, vectors: Tensor, learn: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """`[.., width]` to the quantized vectors (with the gradient of the input), the codes `[.., CODEBOOKS]`, and the error."""
        rest = vectors.detach().reshape(-1, WIDTH).float()
        total = torch.zeros_like(rest)
        chosen = []
        for book in range(CODEBOOKS):
            if learn and not self.started:
                self._start(book, rest)
            entries = self.codes[book]
            distance = entries.square().sum(1) - 2 * rest @ entries.T
            code = distance.argmin(1)
            value = entries[code]
            if learn:
                self._follow(book, rest, code)
            rest = rest - value
            total = total + value
            chosen.append(code)
        if learn:
            self.started.fill_(True)
        total = total.view(vectors.shape).to(vectors.dtype)
        error = F.mse_loss(vectors, total)
        return vectors + (total - vectors).detach(), torch.stack(chosen, -1).view(*vectors.shape[:-1], CODEBOOKS), error

    def decode(self, codes: Tensor) -> Tensor:
        """Codes `[.., CODEBOOKS]` to vectors."""
        return sum(self.codes[book][codes[..., book]] for book in range(CODEBOOKS))

    def _start(self, book: int, vectors: Tensor) -> None:
        pick = torch.randint(0, len(vectors), (CODES,), device=vectors.device)
        self.codes[book] = vectors[pick] + 1e-3 * torch.randn_like(vectors[pick])
        self.sums[book] = self.codes[book]

    def _follow(self, book: int, vectors: Tensor, code: Tensor) -> None:
        counts = torch.zeros_like(self.counts[book]).index_add_(0, code, torch.ones_like(code, dtype=torch.float32))
        sums = torch.zeros_like(self.sums[book]).index_add_(0, code, vectors)
        self.counts[book].mul_(self.DECAY).add_(counts, alpha=1 - self.DECAY)
        self.sums[book].mul_(self.DECAY).add_(sums, alpha=1 - self.DECAY)
        dead = self.counts[book] < self.DEAD
        pick = vectors[torch.randint(0, len(vectors), (CODES,), device=vectors.device)]
        self.sums[book] = torch.where(dead[:, None], pick * 0.2, self.sums[book])
        self.counts[book] = torch.where(dead, torch.full_like(self.counts[book], 0.2), self.counts[book])
        self.codes[book] = self.sums[book] / self.counts[book][:, None]


class Codec(nn.Module):
    """The three together, and a head that names the phoneme from the first codebook, so that this book carries what is said."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.encoder = Encoder(features)
        self.quantizer = Quantizer()
        self.decoder = Qwen3OmniMoeCode2Wav._from_config(config.code2wav())
        self.phoneme = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, PHONEMES))
        del self.decoder.code_embedding  # the quantizer stands in its place until export
        initialise(self.decoder)
        quicken(self.decoder)

    def decode(self, vectors: Tensor) -> Tensor:
        """Vectors `[batch, frames, width]` to samples `[batch, n]`, a little fewer than whole frames."""
        return self.wave(self.contextual(vectors))

    def contextual(self, vectors: Tensor) -> Tensor:
        return self.decoder.pre_transformer(inputs_embeds=vectors).last_hidden_state.transpose(1, 2)

    def wave(self, hidden: Tensor) -> Tensor:
        for stage in self.decoder.upsample:
            for layer in stage:
                hidden = layer(hidden)
        for layer in self.decoder.decoder:
            hidden = layer(hidden)
        return hidden.squeeze(1)


@torch.no_grad()
def initialise(decoder: nn.Module) -> None:
    """Scales that let sound through: the reference's own start near silence and learn slowly."""
    for name, module in decoder.named_modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
        elif isinstance(module, nn.Conv1d):
            nn.init.normal_(module.weight, 0, (module.weight.shape[1] * module.weight.shape[2]) ** -0.5)
            if name.startswith("decoder") and name.endswith("conv2.conv"):
                module.weight.mul_(0.3)  # the end of a residual branch
        elif isinstance(module, nn.ConvTranspose1d):
            inputs, _, width = module.weight.shape
            nn.init.normal_(module.weight, 0, (inputs * width / module.stride[0]) ** -0.5)
            if name.startswith("upsample"):
                module.weight.mul_(0.5).add_(torch.eye(inputs)[:, :, None] * 0.8)
        else:
            continue
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    for name, parameter in decoder.named_parameters():
        if name.endswith("gamma"):
            parameter.fill_(0.2)
    decoder.decoder[-1].conv.weight.mul_(0.02)
