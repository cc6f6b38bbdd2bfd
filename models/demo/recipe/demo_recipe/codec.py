"""The codec: codes are made (see codes.py), so all that learns is what turns them into sound, the reference's own
code2wav.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import (
    Qwen3OmniMoeCode2Wav,
    Qwen3OmniMoeForConditionalGeneration,
)

from . import config
from .config import CODEBOOKS, CODES
from .snake import quicken

WIDTH = config.code2wav().hidden_size


class Codec(nn.Module):
    """Codes to samples."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = Qwen3OmniMoeCode2Wav._from_config(config.code2wav())
        # A frame is the sum of its codes' vectors. The reference takes their mean: the export makes up for it.
        del self.decoder.code_embedding
        self.codes = nn.Embedding(CODEBOOKS * CODES, WIDTH)
        self.register_buffer("offsets", torch.arange(CODEBOOKS) * CODES, persistent=False)
        initialise(self.decoder)
        quicken(self.decoder)
        nn.init.normal_(self.codes.weight, 0, 0.4)

    def warm_start(self, folder: Path) -> None:
        """Takes over how a checkpoint of the same shape makes sound, and what its codes mean if they are those of the
        same voice.
        """
        trained = Qwen3OmniMoeForConditionalGeneration.from_pretrained(
            folder, dtype=torch.float32
        ).code2wav.state_dict()
        if config.is_own(folder):
            self.codes.weight.data.copy_(trained["code_embedding.weight"] / CODEBOOKS)
        fitting = {name: value for name, value in trained.items() if not name.startswith("code_embedding")}
        missing, unknown = self.decoder.load_state_dict(fitting, strict=False)
        if missing or [name for name in unknown if not name.startswith("code_offset")]:
            raise SystemExit(f"{folder} has a code2wav of another shape: {(missing + unknown)[:3]}")

    def decode(self, codes: Tensor) -> Tensor:
        """Codes `[batch, frames, CODEBOOKS]` to samples `[batch, n]`, a little fewer than whole frames."""
        return self.wave(self.contextual(codes))

    def contextual(self, codes: Tensor) -> Tensor:
        vectors = self.codes(codes + self.offsets).sum(-2)
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
