"""A small byte-level BPE with the special tokens of the family, and the prompt template built on it."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

# The order fixes the ids: 0, 1, 2, ...
SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|audio_start|>",
    "<|audio_pad|>",
    "<|audio_end|>",
    "<tts_pad>",
    "<tts_text_bos>",
    "<tts_text_eod>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|vision_start|>",
    "<|vision_end|>",
]
ROLES = ("system", "user", "assistant")
# Only decides which merges exist, so that the vocabulary is not bytes alone.
TEXT = ["the quick brown fox jumps over the lazy dog and then sings a song about the rain on the sea"]


def build(vocab_size: int, special_tokens: list[str] = SPECIAL, text: list[str] = TEXT) -> Tokenizer:
    """Trains the tokenizer on texts. Each role name is one token, as the reference's talker needs it to be."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=special_tokens,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(list(ROLES) * 50 + text, trainer)
    assert tokenizer.get_vocab_size() == vocab_size, tokenizer.get_vocab_size()
    for role in ROLES:
        assert len(tokenizer.encode(role).ids) == 1, role
    return tokenizer


def special(tokenizer: Tokenizer, name: str) -> int:
    token = tokenizer.token_to_id(name)
    assert token is not None, name
    return token


def speakable(tokenizer: Tokenizer, special_tokens: list[str] = SPECIAL) -> list[int]:
    """Ids with printable ASCII text; a random model is biased to them, so that answers are readable."""
    ids = range(len(special_tokens), tokenizer.get_vocab_size())
    texts = ((i, tokenizer.decode([i])) for i in ids)
    return [i for i, text in texts if text.isascii() and text.isprintable()]


class Conversation:
    """Prompt ids turn by turn: audio placeholders, earlier answers by their ids, never text tokenised again."""

    def __init__(self, tokenizer: Tokenizer, system: str | None):
        self.tokenizer = tokenizer
        self.ids: list[int] = []
        if system is not None:
            self._message("system", tokenizer.encode(system).ids)

    def _header(self, role: str) -> list[int]:
        text = self.tokenizer.encode(role).ids + self.tokenizer.encode("\n").ids
        return [special(self.tokenizer, "<|im_start|>"), *text]

    def _close(self) -> list[int]:
        return [special(self.tokenizer, "<|im_end|>"), *self.tokenizer.encode("\n").ids]

    def _message(self, role: str, body: list[int]) -> None:
        self.ids += self._header(role) + body + self._close()

    def ask(self, audio_tokens: int) -> list[int]:
        """Adds a spoken question and the answer's header; returns the whole prompt."""
        pads = [special(self.tokenizer, "<|audio_pad|>")] * audio_tokens
        start, end = (special(self.tokenizer, f"<|audio_{side}|>") for side in ("start", "end"))
        self._message("user", [start, *pads, end])
        self.ids += self._header("assistant")
        return list(self.ids)

    def answered(self, tokens: list[int]) -> None:
        """Adds a finished answer, given with its stop token."""
        assert tokens[-1] == special(self.tokenizer, "<|im_end|>")
        self.ids += tokens[:-1] + self._close()
