"""Writes fixtures/tokenizer: a vocabulary as some folders publish it (vocab.json, merges.txt, tokenizer_config.json, no
tokenizer.json), and what the reference's tokenizer class makes of texts.

    python tests/parity/tokenizer_files.py

Needs tokenizers and transformers of requirements.txt; no torch.
"""

import json
from pathlib import Path

import transformers
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers
from transformers import Qwen2Tokenizer

HOME = Path(__file__).parent / "fixtures" / "tokenizer"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|audio_start|>", "<|audio_pad|>", "<|audio_end|>"]
# Added, but not special: they have text.
ADDED = ["<tool_call>", "</tool_call>"]
# Only decides which merges exist.
CORPUS = [
    "the quick brown fox jumps over the lazy dog, and doesn't it sing? I'll say we've heard 1234 songs.",
    "Überall dieselben café naïve Straße 2025; 你好,世界!こんにちは world  two  spaces\n\nnew lines\t tabs",
]
TEXTS = [
    "",
    "the quick brown fox",
    " leading and trailing ",
    "don't I'LL we've 's 'S",
    "12345 and 3.14",
    "two  spaces,   three\n\n\nlines \t tabs \r\n end",
    "café naïve",
    # Decomposed letters: the normaliser composes them.
    "cafe\u0301 nai\u0308ve",
    "你好,世界! こんにちは",
    "emoji 😀 and \u200d joiner",
    "punctuation!!! (really?) [yes] {no} <maybe> #1 @home",
    '<tool_call>{"name": "clock"}</tool_call>',
    "a<tool_call>b",
]


def main() -> None:
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trained.train_from_iterator(
        CORPUS * 20, trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, show_progress=False)
    )
    HOME.mkdir(parents=True, exist_ok=True)
    trained.model.save(str(HOME))
    vocabulary = json.loads((HOME / "vocab.json").read_text())
    merges = [tuple(line.split(" ")) for line in (HOME / "merges.txt").read_text().splitlines()[1:]]

    reference = Qwen2Tokenizer(vocab=vocabulary, merges=merges, pad_token=None, unk_token=None, eos_token=None)
    reference.add_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL], special_tokens=True)
    reference.add_tokens([AddedToken(token, special=False, normalized=False) for token in ADDED])
    added = {
        str(token_id): {
            "content": token.content,
            "lstrip": token.lstrip,
            "normalized": token.normalized,
            "rstrip": token.rstrip,
            "single_word": token.single_word,
            "special": token.special,
        }
        for token_id, token in sorted(reference.added_tokens_decoder.items())
    }
    config = {"add_prefix_space": False, "added_tokens_decoder": added, "tokenizer_class": "Qwen2Tokenizer"}
    (HOME / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")

    cases = []
    for text in TEXTS:
        ids = reference(text, add_special_tokens=False)["input_ids"]
        cases.append({"text": text, "ids": ids, "decoded": reference.decode(ids, skip_special_tokens=True)})
    expected = {
        "transformers": transformers.__version__,
        "special": {token: reference.convert_tokens_to_ids(token) for token in SPECIAL + ADDED},
        "cases": cases,
    }
    (HOME / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    main()
