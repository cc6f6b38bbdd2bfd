"""Runs the reference's own `generate` over a conversation and records the tensors between its parts."""

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch

from configs import Fixture
from tokens import Conversation, special

# Keyword arguments and result of each call.
Log = list[tuple[dict[str, Any], Any]]


@dataclass
class Question:
    """One turn's input."""

    audio: torch.Tensor  # [samples]
    mel: torch.Tensor  # [bins, frames]


@dataclass
class Turn:
    """Tensors of one turn. Rows are [steps, width], without a batch axis."""

    prompt_ids: list[int]
    tokens: list[int]
    audio_tower: torch.Tensor
    thinker_positions: torch.Tensor  # [3, prompt]
    thinker_hidden: torch.Tensor  # the last hidden state: prompt, then steps
    thinker_logits: torch.Tensor
    handed: torch.Tensor  # last hidden state and token embedding, zero for audio: prompt, then steps
    talker_prompt: torch.Tensor  # before its last two rows get their codec marks, and before the projection
    talker_reply: torch.Tensor  # rows that the steps add: text, end, then padding for ever
    talker_positions: torch.Tensor  # [3, prompt]
    talker_hidden: torch.Tensor
    talker_logits: torch.Tensor
    talker_scores: torch.Tensor  # after the processors
    codes: list[int]  # of each step, the end of speech included


class Talk(Conversation):
    """Prompt ids turn by turn, with this family's marks."""

    def ask(self, audio_tokens: int) -> list[int]:
        ids = [special(self.tokenizer, f"<|{name}|>") for name in ("audio_bos", "AUDIO", "audio_eos")]
        self._message("user", [ids[0], *[ids[1]] * audio_tokens, ids[2]])
        self.ids += self._header("assistant")
        return list(self.ids)


def audio_tokens(model, mel: torch.Tensor) -> int:
    return int(model.thinker.model.audio_tower._get_feat_extract_output_lengths(torch.tensor(mel.shape[1]))[1])


def batch_mels(mels: list[torch.Tensor]) -> dict:
    """`input_features` [turns, bins, longest] and its mask, as the reference's processor would pad them."""
    longest = max(mel.shape[1] for mel in mels)
    features = torch.zeros(len(mels), mels[0].shape[0], longest)
    mask = torch.zeros(len(mels), longest, dtype=torch.long)
    for at, mel in enumerate(mels):
        features[at, :, : mel.shape[1]] = mel
        mask[at, : mel.shape[1]] = 1
    return {"input_features": features, "feature_attention_mask": mask}


@contextmanager
def recorded(module, log: Log, suppressed: Sequence[int] = ()):
    """Logs (keyword arguments, result) of each `generate` call of a sub-model, which never chooses `suppressed`; the
    reference gets what it asked for.
    """
    plain = module.generate

    def generate(*args, **kwargs):
        asked = kwargs | {"return_dict_in_generate": True, "output_hidden_states": True}
        if suppressed:
            asked["suppress_tokens"] = [*kwargs.get("suppress_tokens", []), *suppressed]
        # The talker's forward adds to its input in place.
        given = {name: value.clone() if torch.is_tensor(value) else value for name, value in kwargs.items()}
        result = plain(*args, output_logits=True, output_scores=True, **asked)
        log.append((given, result))
        return result if kwargs.get("return_dict_in_generate") else result.sequences

    module.generate = generate
    try:
        yield
    finally:
        del module.generate


@contextmanager
def masked(talker):
    """transformers 5.23 drops an attention mask of ones before it calls the talker, and without a mask the talker
    leaves out the codec marks of the last two rows of its prompt, which the published weights were trained with. Here
    it gets the mask that was asked for.
    """
    plain = talker.prepare_inputs_for_generation

    @wraps(plain)  # its signature is asked for
    def prepare(*args, **kwargs):
        inputs = plain(*args, **kwargs)
        new = inputs["input_ids"] if inputs.get("inputs_embeds") is None else inputs["inputs_embeds"]
        inputs["attention_mask"] = torch.ones(
            1, inputs["past_key_values"].get_seq_length() + new.shape[1], dtype=torch.long
        )
        return inputs

    talker.prepare_inputs_for_generation = prepare
    try:
        yield
    finally:
        del talker.prepare_inputs_for_generation


@contextmanager
def positions_of(module, log: Log):
    """Logs the rotary positions of each step of a language model."""
    hook = module.register_forward_pre_hook(lambda _module, args: log.append(args[1][:, 0].clone()))
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def silent(model):
    """The sound is not of interest here."""
    model.token2wav.forward = lambda *_, **__: torch.zeros(1)
    try:
        yield
    finally:
        del model.token2wav.forward


def _steps(rows) -> torch.Tensor:
    return torch.cat(list(rows)).float()


@torch.no_grad()
def ask(
    model,
    fixture: Fixture,
    turn: int,
    prompt_ids: list[int],
    mels: list[torch.Tensor],
    stop: int,
    endless: Sequence[int] = (),
    **more,
) -> Turn:
    """One greedy call of the reference's `generate`. `more` are further keyword arguments of it; `endless` are ids that
    the talker never chooses.
    """
    talker = model.talker
    settings = dict(
        speaker=fixture.speakers[turn],
        thinker_eos_token_id=stop,
        thinker_do_sample=False,
        thinker_max_new_tokens=60,
        talker_do_sample=False,
        talker_repetition_penalty=fixture.penalty,
        talker_max_new_tokens=60,
        talker_eos_token_id=[talker.codec_pad_token, talker.codec_eos_token],
    )
    ids = torch.tensor([prompt_ids])
    thinker_log: Log = []
    talker_log: Log = []
    thinker_at: list[torch.Tensor] = []
    talker_at: list[torch.Tensor] = []
    with (
        silent(model),
        masked(talker),
        recorded(model.thinker, thinker_log),
        recorded(talker, talker_log, endless),
        positions_of(model.thinker.model.language_model.rotary_emb, thinker_at),
        positions_of(talker.model.rotary_emb, talker_at),
    ):
        model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **batch_mels(mels), **(settings | more))
    (_, thought), (given, spoken) = thinker_log[0], talker_log[0]
    hidden = _steps(state[-1][0] for state in thought.hidden_states)
    embedded = _steps(state[0][0] for state in thought.hidden_states)
    heard = torch.tensor(prompt_ids) == model.config.thinker_config.audio_token_id
    embedded[: len(prompt_ids)][heard] = 0
    return Turn(
        prompt_ids=prompt_ids,
        tokens=thought.sequences[0, ids.shape[1] :].tolist(),
        audio_tower=encode_audio(model, mels[-1]),
        thinker_positions=thinker_at[0],
        thinker_hidden=hidden,
        thinker_logits=_steps(thought.logits),
        handed=hidden + embedded,
        talker_prompt=given["inputs_embeds"][0],
        talker_reply=given["thinker_reply_part"][0],
        talker_positions=talker_at[0],
        talker_hidden=_steps(state[-1][0, -1:] for state in spoken.hidden_states),
        talker_logits=_steps(spoken.logits),
        talker_scores=_steps(spoken.scores),
        codes=spoken.sequences[0, given["input_ids"].shape[1] :].tolist(),
    )


@torch.no_grad()
def encode_audio(model, mel: torch.Tensor) -> torch.Tensor:
    return model.thinker.model.audio_tower(mel, feature_lens=torch.tensor([mel.shape[1]])).last_hidden_state


def converse(
    model, fixture: Fixture, tokenizer, questions: list[Question], turns: int | None = None, **more
) -> list[Turn]:
    """Holds the conversation, or its first turns; `more` is for the last one of them."""
    talk, made, stop = Talk(tokenizer, fixture.system), [], special(tokenizer, "<|im_end|>")
    turns = turns or len(questions)
    for index, question in enumerate(questions[:turns]):
        prompt = talk.ask(audio_tokens(model, question.mel))
        mels = [q.mel for q in questions[: index + 1]]
        given = more if index + 1 == turns else {}
        made.append(ask(model, fixture, index, prompt, mels, stop, **given))
        talk.answered([*made[-1].tokens[:-1], stop])
    return made
