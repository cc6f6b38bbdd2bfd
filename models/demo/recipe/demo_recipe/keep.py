"""Step `keep`: takes the thinker of a finished checkpoint, with its tokenizer and embeddings, so that only the voice is
trained.

Writes `tokenizer.json`, `embed.pt` and `thinker.pt`. A talker that was trained with other tokens would read other
words, so a work folder that has a tokenizer of its own is refused.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeForConditionalGeneration


def make(work: Path, folder: Path) -> None:
    """`folder` is the checkpoint."""
    taken, tokens = folder / "tokenizer.json", work / "tokenizer.json"
    if tokens.exists() and tokens.read_bytes() != taken.read_bytes():
        raise SystemExit(
            f"{tokens} is not the tokenizer of {folder}: take another work folder, or remove it with what was trained "
            "by it"
        )
    thinker = Qwen3OmniMoeForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).thinker
    work.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(taken, tokens)
    torch.save(thinker.get_input_embeddings().weight.detach().clone(), work / "embed.pt")
    torch.save({"model": thinker.state_dict()}, work / "thinker.pt")
    print(f"keep: tokenizer, embeddings and thinker of {folder}", flush=True)
