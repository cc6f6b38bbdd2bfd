"""Writes fixtures/prompts: small vocabularies of every kind that is read, and the reference's ids of 10,000 lines.

    python tests/parity/prompts/vocabularies.py

Needs tokenizers of requirements.txt and sentencepiece of prompts/requirements.txt; no torch.
"""

import io
import json
import re
import unicodedata
import zlib
from collections.abc import Callable
from pathlib import Path

import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from lines import ALPHABETS, lines, write_tables

HOME = Path(__file__).parents[1] / "fixtures" / "prompts"
COUNT = 10_000
SEED = 42
# One checksum for so many lines.
GROUP = 100
SHOWN = 4
KNOWN_ALPHABETS = 12

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# As the tokenizer.json files of the families have it.
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
BEFORE, ENDS = r"[^\r\n\p{L}\p{N}]?", r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = rf"{BEFORE}{UPPER}*{LOWER}+|{BEFORE}{UPPER}+{LOWER}*|\p{{N}}|{ENDS}"
SHORT = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
GPT4O = rf"{BEFORE}{UPPER}*{LOWER}+{SHORT}|{BEFORE}{UPPER}+{LOWER}*{SHORT}|\p{{N}}{{1,3}}|{ENDS}"
SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
USER_DEFINED = ["<tool>", "</tool>", "\n\n\n", "    "]
USER_DEFINED_PIECES = [*USER_DEFINED[:3], "\u2581" * 4, "\u2581" * 2]
PIECE_KINDS = {"normal": 1, "unknown": 2, "control": 3, "user": 4, "unused": 5, "byte": 6}


def expected(encode: Callable[[str], list[int]], decode: Callable[[list[int]], str] | None, texts: list[str]) -> dict:
    """Checksums of ids and decoded texts by groups of lines, and some whole."""
    ids = [encode(text) for text in texts]
    made = {"ids": grouped([" ".join(map(str, one)) for one in ids]), "shown": ids[:SHOWN]}
    made["distinct"] = len({one for line in ids for one in line})
    if decode is not None:
        made["decoded"] = grouped([decode(one) for one in ids])
    return made


def grouped(texts: list[str]) -> list[str]:
    """Checksum of each group of texts."""
    groups = [texts[at : at + GROUP] for at in range(0, len(texts), GROUP)]
    return [f"{zlib.crc32(chr(0).join(group).encode()):08x}" for group in groups]


def replacement_rules() -> str:
    """A table of replacements: compatibility forms of the lines' characters, and some sequences."""
    rules = {}
    for alphabet in ALPHABETS:
        first, last = map(ord, alphabet)
        for code in range(first, last + 1):
            for text in (chr(code), chr(code) + "\u0301", chr(code) + "\uff9e"):
                form = unicodedata.normalize("NFKC", text)
                if form != text and len(form) < len(text) + (len(text) == 1) * 4:
                    rules[text] = form
    rules |= {"\u3000": " ", "\u00a0": " ", "\t": " ", "\u200b": "", "\u00ad": "", "\r\n": "\n", "\u2026": "..."}
    line = "{}\t{}".format
    codes = lambda text: " ".join(f"{ord(c):X}" for c in text)  # noqa: E731
    return "".join(line(codes(text), codes(form)) + "\n" for text, form in sorted(rules.items()))


def sentencepiece_models(training: list[str]) -> dict[str, bytes]:
    """Small models; their settings are those of published ones."""
    rules = Path("/tmp") / "replacements.tsv"
    rules.write_text(replacement_rules())
    common = {
        "num_threads": 1,
        "hard_vocab_limit": False,
        "minloglevel": 2,
        "input_sentence_size": 0,
        "max_sentence_length": 100_000,
    }
    settings = {
        # As T5, XLM-R: unknown characters, extra spaces removed.
        "unigram": {
            "model_type": "unigram",
            "vocab_size": 1200,
            "character_coverage": 0.999,
            "normalization_rule_tsv": str(rules),
            "user_defined_symbols": USER_DEFINED[:2],
        },
        "unigram_bytes": {
            "model_type": "unigram",
            "vocab_size": 1500,
            "character_coverage": 0.999,
            "byte_fallback": True,
            "normalization_rule_name": "identity",
            "remove_extra_whitespaces": False,
        },
        # As Llama 2 and Mistral.
        "bpe": {
            "model_type": "bpe",
            "vocab_size": 1500,
            "character_coverage": 0.999,
            "byte_fallback": True,
            "normalization_rule_name": "identity",
            "remove_extra_whitespaces": False,
            "split_digits": True,
        },
        # As Gemma: no space before the first word, runs of white space are pieces.
        "bpe_plain": {
            "model_type": "bpe",
            "vocab_size": 1500,
            "character_coverage": 0.999,
            "byte_fallback": True,
            "normalization_rule_name": "identity",
            "remove_extra_whitespaces": False,
            "add_dummy_prefix": False,
            "user_defined_symbols": USER_DEFINED_PIECES,
            "control_symbols": SPECIAL[3:],
        },
        "bpe_replaced": {
            "model_type": "bpe",
            "vocab_size": 1200,
            "character_coverage": 0.999,
            "normalization_rule_tsv": str(rules),
        },
        "suffix": {
            "model_type": "unigram",
            "vocab_size": 1000,
            "character_coverage": 0.999,
            "normalization_rule_name": "identity",
            "treat_whitespace_as_suffix": True,
        },
    }
    made = {}
    for name, setting in settings.items():
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(training), model_writer=model, **common, **setting
        )
        made[name] = model.getvalue()
    return made


def byte_vocabulary(training: list[str]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Tokens and merges over bytes."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(GPT2), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=alphabet, show_progress=False)
    trained.train_from_iterator(training, trainer)
    saved = json.loads(trained.to_str())["model"]
    return saved["vocab"], [tuple(pair) for pair in saved["merges"]]


def of_bytes(vocabulary: dict, merges: list, steps: list, **settings: bool) -> Tokenizer:
    """A tokenizer over bytes, as the tokenizer.json of a family has it."""
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, **settings))
    made.pre_tokenizer = pre_tokenizers.Sequence(steps)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    made.add_tokens([AddedToken(token, special=False, normalized=False) for token in USER_DEFINED])
    made.encode_special_tokens = True
    return made


def gguf_of_bytes(vocabulary: dict, merges: list) -> dict:
    """The vocabulary as the fields of a GGUF file."""
    tokens = [token for token, _ in sorted(vocabulary.items(), key=lambda pair: pair[1])]
    types = [1] * len(tokens) + [3] * len(SPECIAL) + [4] * len(USER_DEFINED)
    return {
        "model": "gpt2",
        "tokens": [*tokens, *SPECIAL, *USER_DEFINED],
        "types": types,
        "merges": [" ".join(pair) for pair in merges],
    }


def gguf_of_pieces(model: bytes, user_defined: list[str]) -> dict:
    """The pieces of a model as the fields of a GGUF file."""
    read = sentencepiece.SentencePieceProcessor(model_proto=model)
    tokens: list[str] = []
    scores: list[float] = []
    types: list[int] = []
    for one in range(read.get_piece_size()):
        piece, kind = read.id_to_piece(one), "normal"
        if read.is_unknown(one):
            kind = "unknown"
        elif read.is_control(one):
            kind = "control"
        elif read.is_unused(one):
            kind = "unused"
        elif read.is_byte(one):
            kind = "byte"
        elif piece in user_defined:
            # As converters write them.
            kind, piece = "user", piece.replace("\u2581", " ")
        tokens.append(piece)
        scores.append(read.get_score(one))
        types.append(PIECE_KINDS[kind])
    return {"model": "llama", "tokens": tokens, "scores": scores, "types": types}


def main() -> None:
    """Writes the fixtures."""
    write_tables()
    HOME.mkdir(parents=True, exist_ok=True)
    # The vocabularies do not know the other alphabets.
    known = re.compile(f"[^\\s!-~\u2581{''.join('-'.join(alphabet) for alphabet in ALPHABETS[:KNOWN_ALPHABETS])}]")
    training, texts = [known.sub("", line) for line in lines(SEED + 1, 6_000)], lines(SEED, COUNT)
    made: dict[str, dict] = {}

    pieces = sentencepiece_models(training)
    for name, model in pieces.items():
        (HOME / f"{name}.model").write_bytes(model)
        read = sentencepiece.SentencePieceProcessor(model_proto=model)
        # Ours leaves unknown pieces out.
        decode = (lambda ids, read=read: read.decode(ids)) if read.is_byte(5) else None
        made[name] = expected(read.encode, decode, texts)

    vocabulary, merges = byte_vocabulary(training)
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    split = lambda pattern: pre_tokenizers.Split(Regex(pattern), "isolated")  # noqa: E731
    families = {
        "gpt-2": ([pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)], {}),
        "smollm": (
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ],
            {},
        ),
        "qwen2": ([split(QWEN2), level], {}),
        "llama-bpe": ([split(LLAMA3), level], {"ignore_merges": True}),
        "tekken": ([split(TEKKEN), level], {"ignore_merges": True}),
        "gpt-4o": ([split(GPT4O), level], {}),
    }
    bytes_of_gguf = gguf_of_bytes(vocabulary, merges)
    for pre, (steps, settings) in families.items():
        read = of_bytes(vocabulary, merges, steps, **settings)
        assert read.token_to_id("    ") == len(bytes_of_gguf["tokens"]) - 1
        encode = lambda text, read=read: read.encode(text, add_special_tokens=False).ids  # noqa: E731
        made[f"gguf {pre}"] = expected(encode, read.decode, texts)
    saved = of_bytes(vocabulary, merges, families["qwen2"][0])
    saved.enable_truncation(8)
    saved.enable_padding(length=12)
    (HOME / "tokenizer.json").write_text(json.dumps(json.loads(saved.to_str()), ensure_ascii=True) + "\n")
    made["tokenizer.json"] = made["gguf qwen2"]

    gguf = {
        "bytes": bytes_of_gguf,
        "pieces": gguf_of_pieces(pieces["bpe"], []),
        "pieces_plain": gguf_of_pieces(pieces["bpe_plain"], USER_DEFINED_PIECES),
    }
    gguf["pieces_plain"]["add_space_prefix"] = False
    for name, fields in gguf.items():
        (HOME / f"gguf_{name}.json").write_text(json.dumps(fields, ensure_ascii=True) + "\n")
    made["gguf pieces"], made["gguf pieces_plain"] = made["bpe"], made["bpe_plain"]

    facts = {
        "sentencepiece": sentencepiece.__version__,
        "tokenizers": tokenizers.__version__,
        "unicode": unicodedata.unidata_version,
        "seed": SEED,
        "count": COUNT,
        "group": GROUP,
        "lines": grouped(texts),
        "vocabularies": made,
    }
    (HOME / "vocabularies.json").write_text(json.dumps(facts, ensure_ascii=True, indent=1) + "\n")
    for name, one in made.items():
        print(f"{name}: {one['distinct']} different tokens")


if __name__ == "__main__":
    main()
