"""Makes the fixtures of the text decoders with transformers: `python make_fixtures.py`, all, or those named.

One small random checkpoint for each architecture, in the files of a published one, with the raw logits of a
conversation and the greedy answer. See ../README.md for the versions that this needs.
"""

import json
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedTokenizerFast

HOME = Path(__file__).resolve().parent
sys.path.insert(0, str(HOME.parent))
import tokens  # noqa: E402

FOLDER = HOME.parent / "fixtures"
VOCABULARY = 300
ANSWER = 16
# Different tokens of an answer, at least.
DIFFERENT = 8
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MESSAGES = [
    {"role": "system", "content": "You sing."},
    {"role": "user", "content": "the quick brown fox"},
    {"role": "assistant", "content": "jumps over"},
    {"role": "user", "content": "the lazy dog, and then?"},
]
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
}
# Sizes differ wherever they can, so that nothing passes by being fixed.
CONFIGS = {
    "text_llama": transformers.LlamaConfig(
        **COMMON,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e5},
    ),
    "text_mistral": transformers.MistralConfig(**COMMON, num_key_value_heads=1, head_dim=16, sliding_window=11),
    "text_qwen2": transformers.Qwen2Config(
        **{**COMMON, "num_hidden_layers": 2}, num_key_value_heads=4, tie_word_embeddings=True
    ),
    "text_qwen3": transformers.Qwen3Config(**COMMON, num_key_value_heads=2, head_dim=20),
    # Scaled rotary positions, as Llama 3.1, and as Qwen2.5 and Qwen3 with long contexts.
    "text_llama3": transformers.LlamaConfig(
        **COMMON,
        num_key_value_heads=2,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 1e3,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 128,
        },
    ),
    "text_yarn": transformers.Qwen3Config(
        **{**COMMON, "num_hidden_layers": 2},
        num_key_value_heads=2,
        head_dim=20,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 1e3,
            "factor": 4.0,
            "original_max_position_embeddings": 128,
        },
    ),
    "text_linear": transformers.LlamaConfig(
        **{**COMMON, "num_hidden_layers": 2},
        num_key_value_heads=2,
        rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 3.0},
    ),
    # Two local layers, then a global one, whose positions are scaled.
    "text_gemma3": transformers.Gemma3TextConfig(
        **{**COMMON, "num_hidden_layers": 4},
        num_key_value_heads=2,
        head_dim=16,
        query_pre_attn_scalar=24,
        sliding_window=11,
        layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters={
            "full_attention": {"rope_type": "linear", "rope_theta": 1e5, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e3},
        },
    ),
}


@torch.no_grad()
def greedy(model, prompt: list[int], count: int, tokens: int | None = None) -> tuple[list[int], torch.Tensor]:
    """The answer of `count` ids below `tokens`, and the raw logits at each step."""
    ids, logits = list(prompt), []
    for _ in range(count):
        row = model(torch.tensor([ids])).logits[0, -1]
        logits.append(row)
        ids.append(int(row[:tokens].argmax()))
    return ids[len(prompt) :], torch.stack(logits)


def write_checkpoint(model, tokenizer, folder: Path) -> None:
    """The files of a published checkpoint."""
    end = tokens.special(tokenizer, "<|im_end|>")
    model.generation_config = GenerationConfig(
        eos_token_id=end, pad_token_id=tokens.special(tokenizer, "<|endoftext|>")
    )
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **special, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")


def main() -> None:
    """Makes every fixture."""
    tokenizer = tokens.build(VOCABULARY)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=TEMPLATE)
    prompt = wrapped.apply_chat_template(MESSAGES, add_generation_prompt=True, return_dict=False)
    end = tokens.special(tokenizer, "<|im_end|>")
    for name in sys.argv[1:] or CONFIGS:
        config = CONFIGS[name]
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        # The first weights whose greedy answer says more than a few tokens, and does not end before its last one.
        for seed in range(100):
            draw(model, seed)
            round_to(model, torch.bfloat16)
            answer, logits = greedy(model, prompt, ANSWER)
            if len(set(answer)) >= DIFFERENT and end not in answer:
                break
        else:
            raise SystemExit(f"{name}: every answer repeats itself")
        folder = FOLDER / name
        folder.mkdir(parents=True, exist_ok=True)
        save_file(
            {
                "prompt": torch.tensor(prompt, dtype=torch.int32),
                "answer": torch.tensor(answer, dtype=torch.int32),
                "logits": logits.float().contiguous(),
            },
            folder / "expected.safetensors",
        )
        facts = {
            "versions": {"transformers": transformers.__version__, "torch": torch.__version__},
            "seed": seed,
            "messages": MESSAGES,
            "text": tokenizer.decode(answer),
        }
        (folder / "expected.json").write_text(json.dumps(facts, indent=1) + "\n")
        write_checkpoint(model, tokenizer, folder / "checkpoint")
        print(f"{name}: {len(prompt)} ids, {facts['text']!r}")


@torch.no_grad()
def round_to(model, dtype: torch.dtype) -> None:
    """Rounds all weights to `dtype`."""
    for parameter in model.parameters():
        parameter.copy_(parameter.to(dtype).to(parameter.dtype))


@torch.no_grad()
def draw(model, seed: int) -> None:
    """Draws every parameter, in the order of its name, at scales at which each one matters."""
    rng = torch.Generator().manual_seed(seed)
    for name, p in sorted(model.named_parameters()):
        if "q_norm" in name or "k_norm" in name:
            p.copy_(1.0 + 0.8 * torch.rand(p.shape, generator=rng))
        elif name.endswith("bias"):
            p.copy_(0.8 * torch.randn(p.shape, generator=rng))
        elif p.dim() == 1:
            # Gemma's norms have stored weights less 1.
            least = -0.4 if model.config.model_type.startswith("gemma") else 0.6
            p.copy_(least + 0.8 * torch.rand(p.shape, generator=rng))
        elif "embed_tokens" in name:
            # Gemma multiplies the rows by the root of their width.
            root = p.shape[1] ** 0.5 if model.config.model_type.startswith("gemma") else 1.0
            p.copy_(0.5 / root * torch.randn(p.shape, generator=rng))
        else:
            p.copy_(1.6 * p.shape[1] ** -0.5 * torch.randn(p.shape, generator=rng))


if __name__ == "__main__":
    main()
