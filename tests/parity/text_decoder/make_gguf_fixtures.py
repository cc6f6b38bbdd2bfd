"""Makes the GGUF fixtures of the text decoders: `python make_gguf_fixtures.py`, all, or those named.

    scripts/setup.sh reference_forms
    target/tools/checkpoint-forms/bin/python tests/parity/text_decoder/make_gguf_fixtures.py

One small random file for each architecture, written by the package `gguf`, with vocabulary and chat template. Its
blocks are dequantised by the same package into the reference, whose raw logits and greedy answer are expected. Blocks
of the K formats, which the package does not write, are random integers with scales of half precision.
"""

import json
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType as Kind
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

HOME = Path(__file__).resolve().parent
sys.path[:0] = [str(HOME), str(HOME.parent)]
import tokens  # noqa: E402
from make_fixtures import ANSWER, DIFFERENT, MESSAGES, TEMPLATE, VOCABULARY, draw, greedy  # noqa: E402

FOLDER = HOME.parent / "fixtures"
K_BLOCKS = {"Q4_K": (144, (0, 2)), "Q5_K": (176, (0, 2)), "Q6_K": (210, (208,))}
# Rows a padded vocabulary has beyond the tokens.
PADDING = 4
COMMON = {
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
}
# Formats by the end of the published name.
MODELS = {
    "gguf_llama": {
        "architecture": "llama",
        "config": transformers.LlamaConfig(
            **COMMON, vocab_size=VOCABULARY, num_key_value_heads=2, tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": 1e5},
        ),
        "kinds": {"embed_tokens": "Q8_0", "o_proj": "Q4_K", "down_proj": "Q6_K", "": "Q4_1"},
    },
    "gguf_qwen2": {
        "architecture": "qwen2",
        "config": transformers.Qwen2Config(
            **COMMON, vocab_size=VOCABULARY + PADDING, num_key_value_heads=4,
            rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        ),
        "kinds": {
            "embed_tokens": "Q4_0", "lm_head": "Q8_0", "q_proj": "Q5_0", "k_proj": "Q5_1", "v_proj": "Q8_0",
            "o_proj": "Q4_K", "down_proj": "Q5_K", "": "Q5_0",
        },
    },
    "gguf_qwen3": {
        "architecture": "qwen3",
        "config": transformers.Qwen3Config(
            **{**COMMON, "hidden_size": 32, "intermediate_size": 80, "num_attention_heads": 4, "head_dim": 20},
            vocab_size=VOCABULARY + PADDING, num_key_value_heads=2,
            rope_parameters={
                "rope_type": "yarn", "rope_theta": 1e3, "factor": 4.0, "original_max_position_embeddings": 128,
            },
        ),
        "kinds": {"embed_tokens": "BF16", "": "F16"},
    },
    "gguf_llama_plain": {
        "architecture": "llama",
        "config": transformers.LlamaConfig(
            **{**COMMON, "hidden_size": 32, "intermediate_size": 80, "num_attention_heads": 4, "head_dim": 20},
            vocab_size=VOCABULARY, num_key_value_heads=2,
            rope_parameters={
                "rope_type": "llama3", "rope_theta": 1e3, "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 128,
            },
        ),
        "kinds": {"": "F16"},
    },
    # Six layers: what stands in no file of Gemma 3 is that every sixth is global.
    "gguf_gemma3": {
        "architecture": "gemma3",
        "config": transformers.Gemma3TextConfig(
            **{**COMMON, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2, "head_dim": 16,
               "num_hidden_layers": 6},
            vocab_size=VOCABULARY, num_key_value_heads=1, query_pre_attn_scalar=16, sliding_window=11,
            rope_parameters={
                "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        ),
        "kinds": {"": "F16"},
    },
}  # fmt: skip
LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
GEMMA3_LAYER = LAYER | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
OUTSIDE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def own_name(architecture: str, published: str) -> str:
    """Name of a tensor in a GGUF file."""
    names = GEMMA3_LAYER if architecture == "gemma3" else LAYER
    if published in OUTSIDE:
        return OUTSIDE[published]
    _, _, layer, rest = published.split(".", 3)
    part, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{names[part]}.{kind}"


def frequency_factors(rope: dict, head_dim: int) -> np.ndarray:
    """Divisors of the frequencies, which files of Llama 3 have in place of the parameters."""
    wavelengths = 2 * np.pi * rope["rope_theta"] ** (np.arange(0, head_dim, 2) / head_dim)
    context, low, high = (
        rope[key] for key in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
    )
    smooth = np.clip((context / wavelengths - low) / (high - low), 0.0, 1.0)
    return (1 / ((1 - smooth) / rope["factor"] + smooth)).astype(np.float32)


def write_rope(writer: gguf.GGUFWriter, architecture: str, config) -> None:
    """Writes rotary positions."""
    rope = config.rope_parameters
    if architecture == "gemma3":
        writer.add_sliding_window(config.sliding_window)
        rope = rope["full_attention"]
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", frequency_factors(rope, config.head_dim))
    elif rope["rope_type"] != "default":
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
        if "original_max_position_embeddings" in rope:
            writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])


def quantised(weight: np.ndarray, kind: Kind, rng: np.random.Generator) -> np.ndarray:
    """Blocks of a matrix: its own numbers where the package can write them, else random ones of the same spread."""
    if kind.name not in K_BLOCKS:
        return gguf.quants.quantize(weight, kind)
    size, halves = K_BLOCKS[kind.name]
    rows, width = weight.shape
    blocks = rng.integers(0, 256, (rows, width // 256, size), dtype=np.uint8)

    def scaled(scales: np.ndarray) -> np.ndarray:
        for at in halves:
            blocks[:, :, at : at + 2] = scales.astype(np.float16)[..., None].view(np.uint8).reshape(rows, -1, 2)
        return blocks.reshape(rows, -1)

    spread = gguf.quants.dequantize(scaled(np.ones(blocks.shape[:2])), kind).std()
    return scaled(rng.uniform(0.8, 1.2, blocks.shape[:2]) * weight.std() / spread)


def permuted(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows of queries or keys as files of `llama` have them: neighbours are rotated together."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


@torch.no_grad()
def quantise_model(model, kinds: dict[str, str], seed: int) -> dict[str, tuple[np.ndarray, Kind]]:
    """Replaces the matrices of the model by those of their blocks; returns the blocks by published names."""
    rng, made = np.random.default_rng(seed), {}
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            made[name] = (parameter.float().numpy(), Kind.F32)
            continue
        kind = Kind[next(kind for part, kind in kinds.items() if part in name)]
        blocks = quantised(parameter.float().numpy(), kind, rng)
        parameter.copy_(torch.from_numpy(gguf.quants.dequantize(blocks, kind).astype(np.float32)))
        made[name] = (blocks, kind)
    return made


def write(path: Path, architecture: str, config, tensors: dict, tokenizer) -> None:
    """Writes the file."""
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_name("a random model")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    write_rope(writer, architecture, config)
    if architecture == "llama":
        writer.add_rope_dimension_count(config.head_dim)
    vocabulary = sorted(tokenizer.get_vocab(with_added_tokens=True).items(), key=lambda item: item[1])
    marks = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    model = json.loads(tokenizer.to_str())["model"]
    unused = [f"[PAD{i}]" for i in range(len(vocabulary), config.vocab_size)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([token for token, _ in vocabulary] + unused)
    writer.add_token_types([3 if token in marks else 1 for token, _ in vocabulary] + [5] * len(unused))
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]])
    # As many files do: the end of a message is no end that the file names.
    writer.add_eos_token_id(tokens.special(tokenizer, "<|endoftext|>"))
    writer.add_chat_template(TEMPLATE)
    for name, (blocks, kind) in tensors.items():
        stored = blocks
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            stored = permuted(blocks, heads)
        if architecture == "gemma3" and name.endswith("norm.weight"):
            stored = blocks + 1
        writer.add_tensor(own_name(architecture, name), np.ascontiguousarray(stored), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    """Makes every fixture."""
    tokenizer = tokens.build(VOCABULARY)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=TEMPLATE)
    prompt = wrapped.apply_chat_template(MESSAGES, add_generation_prompt=True, return_dict=False)
    ends = [tokens.special(tokenizer, end) for end in ("<|im_end|>", "<|endoftext|>")]
    for name in sys.argv[1:] or MODELS:
        given = MODELS[name]
        config = given["config"]
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        # The first weights whose greedy answer says more than a few tokens, and does not end before its last one.
        for seed in range(100):
            draw(model, seed)
            if name == "gguf_qwen3":
                # The padded rows would win if they could.
                model.get_output_embeddings().weight.data[VOCABULARY:] *= 4
            tensors = quantise_model(model, given["kinds"], seed)
            answer, logits = greedy(model, prompt, ANSWER, VOCABULARY)
            if len(set(answer)) >= DIFFERENT and not set(ends) & set(answer):
                break
        else:
            raise SystemExit(f"{name}: every answer repeats itself")
        folder = FOLDER / name
        (folder / "checkpoint").mkdir(parents=True, exist_ok=True)
        write(folder / "checkpoint" / "model.gguf", given["architecture"], config, tensors, tokenizer)
        save_file(
            {
                "prompt": torch.tensor(prompt, dtype=torch.int32),
                "answer": torch.tensor(answer, dtype=torch.int32),
                "logits": logits.float().contiguous(),
            },
            folder / "expected.safetensors",
        )
        facts = {
            "versions": {"gguf": "0.19.0", "transformers": transformers.__version__, "torch": torch.__version__},
            "seed": seed,
            "messages": MESSAGES,
            "text": tokenizer.decode(answer),
        }
        (folder / "expected.json").write_text(json.dumps(facts, indent=1) + "\n")
        size = (folder / "checkpoint" / "model.gguf").stat().st_size
        print(f"{name}: {size} bytes, {len(prompt)} ids, {facts['text']!r}")


if __name__ == "__main__":
    main()
