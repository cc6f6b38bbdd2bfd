"""The text tokenizer: byte-level BPE over the domain's own words, with the family's special tokens."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from . import config
from .domain import conversations

SPECIAL = (
    "<|endoftext|> <|im_start|> <|im_end|> <|audio_start|> <|audio_pad|> <|audio_end|"
    "> <tts_pad> <tts_text_bos> <tts_text_eod> "
    "<|image_pad|> <|video_pad|> <|vision_start|> <|vision_end|>"
).split()
VOCABULARY = 1024


def train() -> Tokenizer:
    """A tokenizer in which most words of the domain are one token. The same each time."""
    turns = [turn for talk in conversations(12_000, seed=5) for turn in talk.turns]
    # Answers twice: they are what is written and spoken, questions only matter to the auxiliary loss.
    lines = [t.answer for t in turns] * 2 + [t.question for t in turns] + ["system", "user", "assistant"] * 500
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        lines,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
        ),
    )
    return tokenizer


def load(work: Path) -> Tokenizer:
    """The tokenizer of a work folder, made on first use."""
    path = work / "tokenizer.json"
    if not path.exists():
        work.mkdir(parents=True, exist_ok=True)
        train().save(str(path))
    return Tokenizer.from_file(str(path))


def embeddings(work: Path) -> torch.Tensor:
    """The tokens' embeddings that thinker and talker share: `[vocabulary, hidden]`, random and frozen, so that each can
    be trained alone.
    """
    path = work / "embed.pt"
    if not path.exists():
        size = load(work).get_vocab_size()
        torch.save(torch.randn(size, config.HIDDEN, generator=torch.Generator().manual_seed(7)) * 0.5, path)
    return torch.load(path)
