"""Step `export`: one checkpoint folder out of codec, talker and thinker, as the reference implementation saves it.

What the work folder lacks is taken from another checkpoint, if one is named: a thinker that was trained alone goes out
with its voice.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from transformers import GenerationConfig, WhisperFeatureExtractor
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeForConditionalGeneration

from . import codec_train, config, tokenizer
from .config import CODEBOOKS
from .training import read

LONGEST_ANSWER = 48  # text tokens
LONGEST_SPEECH = 160  # codec frames


def make(work: Path, out: Path, rest: Path | None = None) -> None:
    """Writes config.json, model.safetensors (bf16), tokenizer and generation settings. Every weight must have been
    trained, in the work folder or for the checkpoint `rest`.
    """
    words = tokenizer.load(work)
    model = Qwen3OmniMoeForConditionalGeneration._from_config(config.model(words))
    parts = {"thinker": (thinker, ("visual.",)), "talker": (talker, ()), "codec": (code2wav, ())}
    made = {path.stem for path in work.glob("*.pt")} | ({"codec"} if (work / "tuned.pt").exists() else set())
    lacking = [name for name in parts if name not in made] if rest else []
    finished = finished_parts(rest, work) if rest and lacking else {}
    for name, (trained, untrained) in parts.items():
        load(modules(model)[name], finished[name] if name in lacking else trained(work), name, untrained)
    model = model.to(torch.bfloat16)
    token = words.token_to_id
    # Greedy: an answer is a function of what was asked, so a transcript is the same on every machine.
    model.generation_config = GenerationConfig(
        eos_token_id=token("<|im_end|>"),
        pad_token_id=token("<|endoftext|>"),
        do_sample=False,
        thinker_max_new_tokens=LONGEST_ANSWER,
        talker_do_sample=False,
        talker_repetition_penalty=1.0,
        talker_max_new_tokens=LONGEST_SPEECH,
    )
    model.save_pretrained(out)
    words.save(str(out / "tokenizer.json"))
    names = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "audio_token": "<|audio_pad|>",
        "audio_bos_token": "<|audio_start|>",
        "audio_eos_token": "<|audio_end|>",
    }
    (out / "tokenizer_config.json").write_text(json.dumps(names, indent=2) + "\n")
    WhisperFeatureExtractor(feature_size=128, sampling_rate=16_000, hop_length=160, n_fft=400).save_pretrained(out)
    size = (out / "model.safetensors").stat().st_size
    print(
        f"export: {sum(p.numel() for p in model.parameters()) / 1e6:.2f} million parameters, {size / 1e6:.1f} MB in "
        f"{out}",
        flush=True,
    )


def modules(model: Qwen3OmniMoeForConditionalGeneration) -> dict[str, torch.nn.Module]:
    """A model's three, by the names of the recipe's files."""
    return {"thinker": model.thinker, "talker": model.talker, "codec": model.code2wav}


def finished_parts(folder: Path, work: Path) -> dict[str, dict[str, torch.Tensor]]:
    """The weights of a finished checkpoint that has the work folder's tokens."""
    if (folder / "tokenizer.json").read_bytes() != (work / "tokenizer.json").read_bytes():
        raise SystemExit(f"{folder} has other tokens than {work}: nothing of it can be taken over")
    model = Qwen3OmniMoeForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    return {name: module.state_dict() for name, module in modules(model).items()}


def load(module: torch.nn.Module, weights: dict[str, torch.Tensor], name: str, untrained: tuple[str, ...]) -> None:
    """Loads all of a module's weights but those under the `untrained` prefixes."""
    missing, unknown = module.load_state_dict(weights, strict=False)
    missing = [key for key in missing if not key.startswith(untrained)]
    if missing or unknown:
        raise RuntimeError(f"{name}: not in the trained weights: {missing[:5]}; not in the model: {unknown[:5]}")


def thinker(work: Path) -> dict[str, torch.Tensor]:
    return read(work, "thinker.pt", "thinker")["model"]


def talker(work: Path) -> dict[str, torch.Tensor]:
    kept = read(work, "talker.pt", "talker")["ema"]
    return {key.removeprefix("model."): value for key, value in kept.items() if key.startswith("model.")}


def code2wav(work: Path) -> dict[str, torch.Tensor]:
    """The codec's decoder with its codes' vectors. The reference takes their mean, the codec their sum."""
    kept = codec_train.weights(work)
    weights = {key.removeprefix("decoder."): value for key, value in kept.items() if key.startswith("decoder.")}
    return weights | {"code_embedding.weight": kept["codes.weight"] * CODEBOOKS}
