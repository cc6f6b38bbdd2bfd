"""The reference's modules with small sizes, their random weights, and the small vocabulary."""

import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import Lfm2Config, PreTrainedTokenizerFast

HOME = Path(__file__).resolve().parent
sys.path.insert(0, str(HOME.parent))
import stubs  # noqa: E402, F401
from liquid_audio import LFM2AudioDetokenizer, LFM2AudioModel  # noqa: E402
from liquid_audio.detokenizer import ISTFT, FusedEmbedding  # noqa: E402
from liquid_audio.model import lfm2_audio  # noqa: E402
from liquid_audio.model.conformer.encoder import ConformerEncoderConfig  # noqa: E402
from liquid_audio.model.transformer import MHA, RawLMBackbone, StandardBlock  # noqa: E402

import tokens  # noqa: E402

# Ids of the published tokenizer.
MARKS = {0: "<|pad|>", 1: "<|startoftext|>", 2: "<|endoftext|>", 6: "<|im_start|>", 7: "<|im_end|>"}
MARKS |= {128: "<|audio_start|>", 129: "<|text_start|>", 130: "<|text_end|>"}
SPECIAL = [MARKS.get(i, f"<|reserved_{i}|>") for i in range(131)]
VOCABULARY = 420
CODEBOOKS = 8
# Entries of a codebook; with its end, one more.
ENTRIES = 32
BINS = 128
WIDTH = 40
SPECTRUM = 64
LFM = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "block_auto_adjust_ff_dim": True,
    "block_multiple_of": 8,
    "block_ffn_dim_multiplier": 1.0,
    "block_ff_dim": 92,
    "intermediate_size": 92,
    "conv_L_cache": 3,
    "conv_bias": False,
    "norm_eps": 1e-5,
    "rope_theta": 1e4,
    "max_position_embeddings": 2048,
    "layer_types": ["conv", "full_attention", "conv", "full_attention"],
}
ENCODER = {
    "feat_in": BINS,
    "feat_out": -1,
    "n_layers": 2,
    "d_model": 24,
    "subsampling": "dw_striding",
    "subsampling_factor": 8,
    "subsampling_conv_channels": 6,
    "causal_downsampling": False,
    "reduction": None,
    "reduction_position": None,
    "reduction_factor": 1,
    "ff_expansion_factor": 2,
    "self_attention_model": "rel_pos",
    "n_heads": 2,
    "att_context_size": [-1, -1],
    "xscaling": False,
    "untie_biases": True,
    "pos_emb_max_len": 5000,
    "conv_kernel_size": 9,
    "conv_norm_type": "batch_norm",
    "conv_context_size": None,
    "dropout": 0.1,
    "dropout_pre_encoder": 0.1,
    "dropout_emb": 0.0,
    "dropout_att": 0.1,
}
PREPROCESSOR = {
    "sample_rate": 16_000,
    "normalize": "per_feature",
    "window_size": 0.025,
    "window_stride": 0.01,
    "window": "hann",
    "features": BINS,
    "n_fft": 512,
    "log": True,
    "frame_splicing": 1,
    "dither": 1e-5,
    "pad_to": 0,
    "pad_value": 0.0,
}
# The reference fixes these sizes; they are small here, and say so in config.json.
DEPTH = {"layers": 2, "dim": 32, "tie": True}
DEPTH_HEADS = {"num_heads": 4, "gqa_dim": 2}
DEPTH_MULTIPLE = 16
DETOKENIZER: dict[str, Any] = {
    "vocab_size": 8,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "block_auto_adjust_ff_dim": False,
    "intermediate_size": 56,
    "block_ff_dim": 56,
    "conv_L_cache": 3,
    "conv_bias": False,
    "norm_eps": 1e-5,
    "rope_theta": 1e4,
    "max_position_embeddings": 2048,
    "sliding_window": 11,
    "layer_types": ["conv", "sliding_attention", "conv", "sliding_attention"],
}


def build_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = tokens.build(VOCABULARY, SPECIAL)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def build_model() -> LFM2AudioModel:
    LFM2AudioModel.audio_vocab_size = ENTRIES + 1
    config = lfm2_audio.LFM2AudioConfig(
        architectures=["Lfm2AudioForConditionalGeneration"],
        codebooks=CODEBOOKS,
        tie_audio_embeddings=False,
        semantic_codebook_factor=100.0,
        codebook_weight="log",
        interleaved_n_text=6,
        interleaved_n_audio=12,
        preprocessor=PREPROCESSOR,
        encoder=ConformerEncoderConfig(**ENCODER),
        lfm=Lfm2Config(**LFM, attn_implementation="sdpa"),
        depthformer=lfm2_audio.DepthformerConfig(**{**DEPTH, "dim": DEPTH["dim"]}),
    )
    model = LFM2AudioModel(config)
    blocks = [
        StandardBlock(MHA(DEPTH["dim"], **DEPTH_HEADS, max_seq_len=64), multiple_of=DEPTH_MULTIPLE)
        for _ in range(DEPTH["layers"])
    ]
    model.depthformer = RawLMBackbone(blocks, has_embedding=False)
    return model.eval()


def build_detokenizer() -> LFM2AudioDetokenizer:
    layers = ["full_attention" if kind == "sliding_attention" else kind for kind in DETOKENIZER["layer_types"]]
    # Its modules have the published sizes: 512 and 1282.
    config = Lfm2Config(**{**DETOKENIZER, "hidden_size": 512, "num_hidden_layers": 1, "layer_types": ["conv"]})
    detokenizer = LFM2AudioDetokenizer(config)
    config = Lfm2Config(**{**DETOKENIZER, "layer_types": layers}, attn_implementation="sdpa")
    detokenizer.lfm = transformers.Lfm2Model(config)
    width = DETOKENIZER["hidden_size"]
    detokenizer.emb = FusedEmbedding(width, CODEBOOKS, ENTRIES)
    detokenizer.lin = torch.nn.Linear(width, SPECTRUM + 2)
    detokenizer.istft = ISTFT(SPECTRUM, SPECTRUM // 4, SPECTRUM)
    detokenizer.sliding_window_size = DETOKENIZER["sliding_window"]
    return detokenizer.eval()


GAINS = {
    "in_proj": 1.6,
    "conv.conv": 1.5,
    "out_proj": 1.6,
    "q_proj": 1.5,
    "k_proj": 1.5,
    "w2": 2.5,
    "linear_out": 1.6,
    "linear2": 2.5,
    "pre_encode": 1.5,
    "pointwise_conv2": 1.6,
    "depth_linear": 1.3,
    "qkv_proj": 1.5,
}


@torch.no_grad()
def draw(model, seed: int) -> None:
    """Draws every parameter, in the order of its name, at scales at which each one matters."""
    rng = torch.Generator().manual_seed(seed)

    def normal(p, std):
        p.copy_(std * torch.randn(p.shape, generator=rng))

    for name, p in sorted(model.named_parameters()):
        gain = next((gain for part, gain in GAINS.items() if part in name), 1.0)
        if "layernorm" in name:
            p.copy_(1.0 + 0.8 * torch.rand(p.shape, generator=rng))
        elif "pos_bias" in name:
            normal(p, 0.8)
        elif name.endswith("lin.bias"):
            p.copy_(torch.randn(p.shape, generator=rng))
            p[: SPECTRUM // 2 + 1] -= 1.5
        elif name.endswith("bias"):
            normal(p, 0.3)
        elif p.dim() == 1:
            p.copy_(0.6 + 0.8 * torch.rand(p.shape, generator=rng))
        elif "depth_embeddings" in name:
            normal(p, 0.7)
        elif "audio_embedding" in name:
            normal(p, 0.4)
        elif "emb" in name and "norm" not in name:
            normal(p, 1.0 if "emb.emb" not in name else 2.0)
        else:
            normal(p, gain * p[0].numel() ** -0.5)
    for name, p in sorted(model.named_buffers()):
        if name.endswith("running_mean"):
            normal(p, 0.3)
        elif name.endswith("running_var"):
            p.copy_(0.5 + torch.rand(p.shape, generator=rng))


@torch.no_grad()
def favour(model, tokenizer) -> None:
    """Words are likelier than other ids."""
    speakable = tokens.speakable(tokenizer.backend_tokenizer, SPECIAL)
    table = model.lfm.embed_tokens.weight
    keep = torch.zeros(len(table), dtype=torch.bool)
    keep[speakable] = True
    table[~keep] *= 0.4
    # No other code ends the speech.
    for codebook in model.depth_embeddings[1:]:
        codebook.embedding.weight[ENTRIES] *= 0.1


def round_to(model, dtype: torch.dtype) -> None:
    with torch.no_grad():
        stored = (buffer for name, buffer in model.named_buffers() if "running" in name)
        for p in [*model.parameters(), *stored]:
            p.copy_(p.to(dtype).to(p.dtype))
