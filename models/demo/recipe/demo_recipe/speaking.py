"""A trained talker that runs freely: texts to codes, many at once."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from transformers import DynamicCache

from . import tokenizer
from .config import CODEBOOKS, CODES
from .export import LONGEST_SPEECH
from .talker import MELODY, Spoken, Talker

ASKED = 8  # rows of the question that is answered, which this talker does not listen to


def load(work: Path, device: torch.device) -> Talker:
    """The averaged weights."""
    words = tokenizer.load(work)
    talker = Talker(words, tokenizer.embeddings(work)).to(device).eval()
    talker.load_state_dict(torch.load(work / "talker.pt", map_location=device, weights_only=True)["ema"])
    talker.words = words
    return talker


@torch.no_grad()
def say(talker: Talker, texts: list[str], plans: list[Tensor] | None = None) -> list[Tensor]:
    """The codes i64 `[frames, CODEBOOKS]` that the talker gives each text, each the likeliest after those before it.

    With `plans`, codes of the teacher for each text, it says their phonemes in their lengths: only melody and loudness
    are its own.
    """
    device = talker.text.device
    most = max(map(len, plans)) if plans else LONGEST_SPEECH
    plan = torch.nn.utils.rnn.pad_sequence([p.long() for p in plans], batch_first=True).to(device) if plans else None
    end, users = talker.words.token_to_id("<|im_end|>"), talker.user(None, ASKED)
    unsaid = torch.zeros(most, CODEBOOKS, dtype=torch.long)
    answers = [Spoken(torch.tensor([*talker.words.encode(text).ids, end]), unsaid) for text in texts]
    # Up to where the first frame is predicted they differ in nothing but one token.
    sequences = [talker.sequence(answer, unsaid, users) for answer in answers]
    tokens = torch.stack([text for text, _, _ in sequences]).to(device)
    _, codes, first = sequences[0]
    before = first + 1
    rows = talker.inputs(tokens[:, :before], codes[:before].to(device).expand(len(texts), -1, -1))
    ids = torch.arange(CODES, talker.config.text_config.vocab_size, device=device)
    ruled_out = ids[ids != talker.config.codec_eos_token_id]
    cache, made = DynamicCache(), torch.zeros(len(texts), 0, CODEBOOKS, dtype=torch.long, device=device)
    lengths = torch.tensor([len(p) for p in plans]) if plans else torch.full((len(texts),), most)
    for frame in range(most + 1):
        at = torch.arange(cache.get_seq_length(), cache.get_seq_length() + rows.shape[1], device=device).expand(
            3, len(texts), -1
        )
        state = talker.model.model(
            inputs_embeds=rows, position_ids=at, past_key_values=cache, use_cache=True
        ).last_hidden_state[:, -1]
        scores = talker.model.codec_head(state)
        scores[:, ruled_out] = -torch.inf
        likeliest = scores.argmax(-1)
        if plan is None:
            ended = (likeliest == talker.config.codec_eos_token_id).cpu()
            lengths[ended] = lengths[ended].clamp(max=frame)
        if frame == int(lengths.max()):
            break
        codes = _completed(talker, state, likeliest.clamp(max=CODES - 1), None if plan is None else plan[:, frame])
        made = torch.cat([made, codes[:, None]], 1)
        rows = talker.inputs(tokens[:, before + frame, None], codes[:, None])
    return [codes[:length].cpu() for codes, length in zip(made, lengths.tolist(), strict=True)]


def _completed(talker: Talker, state: Tensor, first: Tensor, plan: Tensor | None) -> Tensor:
    """The codes `[texts, CODEBOOKS]` of one frame: all but melody and loudness after `plan`, if there is one."""
    model, predictor = talker.model, talker.model.code_predictor
    books = [model.get_input_embeddings(), *predictor.get_input_embeddings()]
    codes = [first if plan is None else plan[:, 0]]
    inputs = [state, books[0](codes[0])]
    for book in range(1, CODEBOOKS):
        hidden = predictor.model(inputs_embeds=torch.stack(inputs, 1), use_cache=False).last_hidden_state[:, -1]
        chosen = predictor.lm_head[book - 1](hidden).argmax(-1)
        codes.append(chosen if plan is None or book >= MELODY.start else plan[:, book])
        inputs.append(books[book](codes[-1]))
    return torch.stack(codes, 1)
