"""Runs the reference's own `generate` over a conversation and records the tensors between its parts."""

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import _get_feat_extract_output_lengths

from configs import SUPPRESSED, Fixture
from tokens import Conversation, special

# Keyword arguments and result of each call.
Log = list[tuple[dict[str, Any], Any]]


@dataclass
class Question:
    """One turn's input."""

    audio: torch.Tensor  # [samples]
    mel: torch.Tensor  # [bins, frames], fed to the model
    mel_reference: torch.Tensor  # [bins, frames], for comparison only


@dataclass
class Turn:
    """Tensors of one turn. Rows are [steps, width], without a batch axis."""

    prompt_ids: list[int]
    tokens: list[int]
    audio_tower: torch.Tensor
    thinker_logits: torch.Tensor
    thinker_hidden: torch.Tensor  # at accept_hidden_layer: prompt, then steps
    thinker_last: torch.Tensor  # what lm_head read at each step
    thinker_embed: torch.Tensor  # inputs: prompt, then steps
    talker_prompt: torch.Tensor
    talker_trailing: torch.Tensor
    talker_pad: torch.Tensor  # the text row after the last trailing one
    talker_logits: torch.Tensor
    talker_scores: torch.Tensor  # after the processors
    talker_hidden: torch.Tensor
    talker_codes: list[int]  # codebook 0 of each step, the end of speech included
    predictor_logits: torch.Tensor  # [frames, groups - 1, codes]
    codes: torch.Tensor  # [groups, frames]


class RunSettings(Protocol):
    """The part of a fixture that a conversation takes."""

    @property
    def speaker(self) -> str: ...
    @property
    def accept_hidden_layer(self) -> int: ...
    @property
    def talker_repetition_penalty(self) -> float: ...
    @property
    def limits(self) -> dict: ...
    @property
    def system(self) -> str | None: ...


def audio_tokens(mel: torch.Tensor) -> int:
    return int(_get_feat_extract_output_lengths(torch.tensor(mel.shape[1])))


def batch_mels(mels: list[torch.Tensor]) -> dict:
    """`input_features` [turns, bins, longest] and its mask, as the reference's processor would pad them."""
    longest = max(mel.shape[1] for mel in mels)
    features = torch.zeros(len(mels), mels[0].shape[0], longest)
    mask = torch.zeros(len(mels), longest, dtype=torch.long)
    for row, mel in enumerate(mels):
        features[row, :, : mel.shape[1]] = mel
        mask[row, : mel.shape[1]] = 1
    return {"input_features": features, "feature_attention_mask": mask}


@contextmanager
def each_audio_alone(thinker_model):
    """The reference pads all audio items of a call to the longest chunk among them, so a question shorter than one
    chunk would be encoded differently beside a longer one. Here each is encoded in a call of its own."""
    together = thinker_model.get_audio_features

    def alone(input_features, feature_attention_mask=None, audio_feature_lengths=None, **kwargs):
        parts = []
        for features, mask in zip(input_features, feature_attention_mask, strict=True):
            frames = int(mask.sum())
            parts.append(together(features[None, :, :frames], mask[None, :frames], None, **kwargs))
        result = parts[0]
        result.last_hidden_state = torch.cat([part.last_hidden_state for part in parts])
        return result

    thinker_model.get_audio_features = alone
    try:
        yield
    finally:
        del thinker_model.get_audio_features


@contextmanager
def recorded(module, log: Log):
    """Logs (keyword arguments, result) of each `generate` call of a sub-model, asking it for logits and scores."""
    plain = module.generate

    def generate(*args, **kwargs):
        result = plain(*args, output_logits=True, output_scores=True, **kwargs)
        log.append((kwargs, result))
        return result

    module.generate = generate
    try:
        yield
    finally:
        del module.generate


def _steps(rows) -> torch.Tensor:
    return torch.cat(list(rows)).float()


@torch.no_grad()
def ask(model, fixture: RunSettings, prompt_ids: list[int], mels: list[torch.Tensor], **overrides) -> Turn:
    """One greedy call of the reference's `generate`. `overrides` are further keyword arguments of it."""
    settings = dict(
        speaker=fixture.speaker,
        thinker_eos_token_id=model.config.im_end_token_id,
        thinker_do_sample=False,
        talker_do_sample=False,
        talker_repetition_penalty=fixture.talker_repetition_penalty,
        **fixture.limits,
    )
    ids = torch.tensor([prompt_ids])
    thinker_log: Log = []
    talker_log: Log = []
    predictor_log: Log = []
    with (
        each_audio_alone(model.thinker.model),
        recorded(model.thinker, thinker_log),
        recorded(model.talker, talker_log),
        recorded(model.talker.code_predictor, predictor_log),
    ):
        model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **batch_mels(mels), **(settings | overrides))
    (_, thinker), (talker_inputs, talker) = thinker_log[0], talker_log[0]
    states = thinker.hidden_states
    residual = [state[1] for state in talker.hidden_states if state[1] is not None]
    return Turn(
        prompt_ids=prompt_ids,
        tokens=thinker.sequences[0, ids.shape[1] :].tolist(),
        audio_tower=encode_audio(model, mels[-1]),
        thinker_logits=_steps(thinker.logits),
        thinker_hidden=_steps(state[fixture.accept_hidden_layer][0] for state in states),
        thinker_last=_steps(state[-1][0, -1:] for state in states),
        thinker_embed=_steps(state[0][0] for state in states),
        talker_prompt=talker_inputs["inputs_embeds"][0],
        talker_trailing=talker_inputs["trailing_text_hidden"][0],
        talker_pad=talker_inputs["tts_pad_embed"][0],
        talker_logits=_steps(talker.logits),
        talker_scores=_steps(talker.scores),
        talker_hidden=_steps(state[0][-1][0, -1:] for state in talker.hidden_states),
        talker_codes=talker.sequences[0].tolist(),
        predictor_logits=torch.stack([_steps(result.logits) for _, result in predictor_log]),
        codes=torch.cat(residual).T,
    )


@torch.no_grad()
def encode_audio(model, mel: torch.Tensor) -> torch.Tensor:
    lengths = torch.tensor([mel.shape[1]])
    return model.thinker.model.audio_tower(mel, feature_lens=lengths).last_hidden_state


@torch.no_grad()
def decode(model, codes: torch.Tensor) -> torch.Tensor:
    """[samples]: one decode of all frames, [groups, frames]."""
    return model.code2wav(codes[None])[0, 0]


def converse(model, fixture: RunSettings, tokenizer, questions: list[Question]) -> list[Turn]:
    """Holds the whole conversation."""
    conversation, turns = Conversation(tokenizer, fixture.system), []
    for index, question in enumerate(questions):
        prompt = conversation.ask(audio_tokens(question.mel))
        turn = ask(model, fixture, prompt, [q.mel for q in questions[: index + 1]])
        turns.append(turn)
        conversation.answered(turn.tokens)
    return turns


def explore_answer(model, fixture: Fixture, prompt_ids, mels, tokenizer, steps: int):
    """Returns the thinker's output without stopping: tokens, hidden rows, logits."""
    stop = special(tokenizer, "<|im_end|>")
    ids = torch.tensor([prompt_ids])
    with each_audio_alone(model.thinker.model):
        result = model.thinker.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            **batch_mels(mels),
            max_new_tokens=steps,
            eos_token_id=stop,
            suppress_tokens=[stop],
            do_sample=False,
            output_hidden_states=True,
            output_scores=True,
            return_dict_in_generate=True,
        )
    hidden = _steps(state[-1][0, -1:] for state in result.hidden_states)
    return result.sequences[0, ids.shape[1] :].tolist(), hidden, _steps(result.scores)


def explore_speech(model, fixture: Fixture, prompt_ids, mels, steps: int) -> Turn:
    """A turn whose talker never stops."""
    vocab = model.config.talker_config.text_config.vocab_size
    return ask(
        model,
        fixture,
        prompt_ids,
        mels,
        talker_max_new_tokens=steps,
        talker_suppress_tokens=list(range(vocab - SUPPRESSED, vocab)),
    )
