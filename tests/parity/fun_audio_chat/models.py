"""A derivation of Fun-Audio-Chat in torch, written from its description, with the names of the published weights.

Its classes are in no package. The audio tower is transformers' Qwen2.5-Omni encoder, both language models are
transformers' Qwen3; written here is what stands between them, and the order of a response's steps. Its sound is
CosyVoice3's (../cosyvoice3/models.py).
"""

import math
from typing import Any

import torch
from torch import nn
from transformers import DynamicCache, Qwen3Config, Qwen3ForCausalLM, Qwen3Model
from transformers.models.qwen2_5_omni.configuration_qwen2_5_omni import Qwen2_5OmniAudioEncoderConfig
from transformers.models.qwen2_5_omni.modeling_qwen2_5_omni import Qwen2_5OmniAudioEncoder

VOCABULARY = 310
HIDDEN = 32
GROUP = 5
CODES = 64
BOS, EOS, PAD = CODES, CODES + 1, CODES + 2
CODEBOOK = CODES + 4
TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
TEXT_THETA = 5_000_000
HEAD: dict[str, Any] = {
    "vocab_size": 16,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
}
HEAD_THETA = 1_000_000
TOWER: dict[str, Any] = {
    "num_mel_bins": 64,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "d_model": 32,
    "n_window": 40,
    "output_dim": HIDDEN,
}


def qwen3(sizes: dict[str, Any], theta: float) -> Qwen3Config:
    """Configuration of a stack."""
    rope = {"rope_type": "default", "rope_theta": float(theta)}
    return Qwen3Config(**sizes, rope_parameters=rope, attn_implementation="eager")


class FunAudioChat(nn.Module):
    """All weights but those of the sound."""

    def __init__(self):
        super().__init__()
        tower = Qwen2_5OmniAudioEncoderConfig(**TOWER, attn_implementation="eager")
        self.continuous_audio_tower = Qwen2_5OmniAudioEncoder(tower)
        self.audio_tower = nn.Module()
        self.audio_tower.embed_tokens = nn.Embedding(CODEBOOK, HIDDEN)
        self.audio_tower.output_matching = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.audio_tower.continual_output_matching = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.audio_invert_tower = nn.Module()
        self.audio_invert_tower.pre_matching = nn.Linear(HIDDEN, GROUP * HIDDEN)
        self.audio_invert_tower.crq_transformer = Qwen3Model(qwen3(HEAD, HEAD_THETA))
        del self.audio_invert_tower.crq_transformer.embed_tokens
        self.audio_invert_tower.input_matching = nn.Linear(HIDDEN, HEAD["hidden_size"], bias=False)
        self.audio_invert_tower.output_matching = nn.Linear(HEAD["hidden_size"], HIDDEN, bias=False)
        self.language_model = Qwen3ForCausalLM(qwen3(TEXT, TEXT_THETA))

    def codes(self) -> torch.Tensor:
        """Table of codes, which is the head's matrix, too."""
        return self.audio_tower.embed_tokens.weight

    def embed(self, ids: list[int]) -> torch.Tensor:
        """Rows of text ids."""
        return self.language_model.model.embed_tokens.weight[ids]

    def hear(self, mel: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows of the tower, 25 a second, and those of the language model, of mel frames `[bins, frames]`; the last
        five rows are filled with zeros."""
        rows = self.continuous_audio_tower(mel, feature_lens=torch.tensor([mel.shape[1]])).last_hidden_state
        filled = torch.cat([rows, torch.zeros(-len(rows) % GROUP, rows.shape[1])])
        return rows, self.audio_tower.continual_output_matching(filled.view(-1, GROUP, rows.shape[1]).mean(1))

    def spoken(self, codes: list[int]) -> torch.Tensor:
        """Row of a group of codes."""
        return self.audio_tower.output_matching(self.codes()[codes].mean(0))


class Head:
    """The head with its cache: five positions for one of the language model's."""

    def __init__(self, model: FunAudioChat):
        self.model, self.cache, self.before = model, DynamicCache(), model.codes()[BOS]

    def draw(self, hidden: torch.Tensor, choose) -> tuple[list[int], torch.Tensor]:
        """The codes after rows of the language model with the embeddings of their ids, and their logits."""
        tower = self.model.audio_invert_tower
        inputs = tower.pre_matching(hidden).reshape(len(hidden) * GROUP, -1)
        drawn: list[int] = []
        logits = []
        first = len(inputs) - GROUP
        for at in range(GROUP):
            # Of earlier positions all rows have the embedding that stands before them.
            rows = inputs[: first + 1] if at == 0 else inputs[first + at : first + at + 1]
            x = tower.input_matching(rows + self.before)
            x = tower.crq_transformer(inputs_embeds=x[None], past_key_values=self.cache, use_cache=True)
            scores = self.model.codes() @ tower.output_matching(x.last_hidden_state[0, -1])
            logits.append(scores)
            drawn.append(choose(scores, drawn))
            self.before = self.model.codes()[drawn[-1]]
        return drawn, torch.stack(logits)


@torch.no_grad()
def draw(model: nn.Module, seed: int) -> nn.Module:
    """Draws every parameter, in the order of its name, at scales at which each one matters."""
    rng = torch.Generator().manual_seed(seed)
    for name, p in sorted(model.named_parameters()):
        norm = ("norm" in name or "ln_post" in name) and name.endswith("weight")
        if norm:
            p.copy_(0.7 + 0.6 * torch.rand(p.shape, generator=rng))
        elif p.ndim == 1:
            p.copy_(0.3 * torch.randn(p.shape, generator=rng))
        elif "embed_tokens" in name:
            p.copy_(torch.randn(p.shape, generator=rng))
        else:
            projects = "proj" in name or "fc2" in name
            gain = 6.0 if "lm_head" in name else 2.0 if "output_matching" in name else 1.5 if projects else 1.0
            p.copy_(gain * torch.randn(p.shape, generator=rng) / math.sqrt(p[0].numel()))
        p.copy_(p.to(torch.bfloat16).float())
    return model.eval()
