"""Finds weights with which greedy answers are varied, decided clearly, and end by themselves."""

import torch
from transformers import Qwen3OmniMoeForConditionalGeneration

import checks
import configs
import runs
import tokens
import weights
from configs import Fixture
from tokens import Conversation, special

MIN_GAP = 5e-3
MIN_ROUTER_GAP = 2e-4
MIN_DISTINCT = 20


def gap(scores: torch.Tensor) -> float:
    """The smallest lead of the best over the second best, over all rows."""
    best, second = scores.flatten(0, -2).topk(2, dim=-1).values.unbind(-1)
    return (best - second).min().item()


def draw(fixture: Fixture, tokenizer, seed: int):
    """A model with weights drawn from `seed`, rounded to the checkpoint's dtype, its stop rows still zero."""
    model = Qwen3OmniMoeForConditionalGeneration._from_config(configs.build(fixture, tokenizer)).eval()
    weights.redraw(model, seed)
    weights.favour(model.thinker.lm_head, tokens.speakable(tokenizer), others=0.4)
    weights.calibrate_waveform(model.code2wav, seed)
    with torch.no_grad():
        model.thinker.lm_head.weight[special(tokenizer, "<|im_end|>")] = 0
        model.talker.codec_head.weight[model.config.talker_config.codec_eos_token_id] = 0
    weights.round_to(model, getattr(torch, fixture.dtype))
    return model


def stop_thinker(model, fixture: Fixture, tokenizer, questions) -> str | None:
    """Sets the thinker's stop row; or says why it cannot."""
    stop = special(tokenizer, "<|im_end|>")
    conversation, evidence, said = Conversation(tokenizer, fixture.system), [], set()
    for index, (question, length) in enumerate(zip(questions, fixture.answers, strict=True)):
        prompt = conversation.ask(runs.audio_tokens(question.mel))
        mels = [q.mel for q in questions[: index + 1]]
        answer, hidden, scores = runs.explore_answer(model, fixture, prompt, mels, tokenizer, length)
        if gap(scores[:-1]) < MIN_GAP:
            return f"turn {index}: thinker undecided"
        if any(token < len(tokens.SPECIAL) for token in answer):
            return f"turn {index}: a special token in the answer"
        evidence.append((hidden, scores.max(-1).values))
        said |= set(answer[:-1])
        conversation.answered([*answer[:-1], stop])
    if len(said) < MIN_DISTINCT:
        return f"only {len(said)} distinct tokens"
    return set_stop_row(model.thinker.lm_head, stop, evidence, fixture.dtype)


def stop_talker(model, fixture: Fixture, tokenizer, questions) -> str | None:
    """Sets the talker's stop row, given a thinker that stops; or says why it cannot."""
    conversation, evidence, said = Conversation(tokenizer, fixture.system), [], set()
    for index, (question, frames) in enumerate(zip(questions, fixture.frames, strict=True)):
        prompt = conversation.ask(runs.audio_tokens(question.mel))
        mels = [q.mel for q in questions[: index + 1]]
        turn = runs.explore_speech(model, fixture, prompt, mels, frames + 1)
        if len(turn.tokens) != fixture.answers[index]:
            return f"turn {index}: the thinker stopped after {len(turn.tokens)}"
        if gap(turn.talker_scores[:-1]) < MIN_GAP:
            return f"turn {index}: talker undecided"
        if gap(turn.predictor_logits) < MIN_GAP:
            return f"turn {index}: code predictor undecided"
        evidence.append((turn.talker_hidden, turn.talker_scores.max(-1).values))
        said |= set(turn.talker_codes[:-1])
        conversation.answered(turn.tokens)
    if len(said) < MIN_DISTINCT:
        return f"only {len(said)} distinct codes"
    return set_stop_row(model.talker.codec_head, model.config.talker_config.codec_eos_token_id, evidence, fixture.dtype)


def set_stop_row(head, row: int, evidence, dtype: str) -> str | None:
    found = weights.stop_row(evidence)
    if found is None:
        return "no stop row"
    with torch.no_grad():
        head.weight[row] = found.to(getattr(torch, dtype)).float()
    return None


def problem(fixture: Fixture, turns: list[runs.Turn], stop: int, codec_stop: int) -> str | None:
    """Returns the missing property of a finished conversation, if any."""
    said = {token for turn in turns for token in turn.tokens}
    codes = {code for turn in turns for code in turn.talker_codes}
    for index, turn in enumerate(turns):
        if turn.tokens[-1] != stop or len(turn.tokens) != fixture.answers[index]:
            return f"turn {index}: the thinker stopped after {len(turn.tokens)}"
        if turn.talker_codes[-1] != codec_stop or len(turn.talker_codes) != fixture.frames[index] + 1:
            return f"turn {index}: the talker stopped after {len(turn.talker_codes)}"
        for name, scores in (
            ("thinker", turn.thinker_logits),
            ("talker", turn.talker_scores),
            ("predictor", turn.predictor_logits),
        ):
            if gap(scores) < MIN_GAP:
                return f"turn {index}: {name} gap {gap(scores):.1e}"
    if len(said) < MIN_DISTINCT or len(codes) < MIN_DISTINCT:
        return f"{len(said)} distinct tokens, {len(codes)} distinct codes"
    return None


def undecided_router(model, fixture: Fixture, turns, questions) -> str | None:
    """A choice of experts so close that another summation order could make it differently."""
    lead = checks.router_gap(model, fixture, turns, questions)
    return None if lead is None or lead > MIN_ROUTER_GAP else f"a router is undecided by {lead:.1e}"


def hidden_block(model, fixture: Fixture, turns, questions) -> str | None:
    """A parameter that no compared tensor would miss."""
    for part in checks.weakest_blocks(model, fixture, turns, questions).values():
        if part["change"] < checks.MIN_CHANGE:
            return f"{part['weakest']} moves its output by {part['change']:.3f} only"
    return None


def search(fixture: Fixture, tokenizer, questions, tries: int = 1000):
    """The first seed from the fixture's on whose model holds the whole conversation as wanted."""
    stop = special(tokenizer, "<|im_end|>")
    for seed in range(fixture.seed, fixture.seed + tries):
        model = draw(fixture, tokenizer, seed)
        fault = stop_thinker(model, fixture, tokenizer, questions) or stop_talker(model, fixture, tokenizer, questions)
        if fault is None:
            turns = runs.converse(model, fixture, tokenizer, questions)
            fault = problem(fixture, turns, stop, model.config.talker_config.codec_eos_token_id)
            fault = fault or undecided_router(model, fixture, turns, questions)
            fault = fault or hidden_block(model, fixture, turns, questions)
        if fault is None:
            return model, seed
        print(f"{fixture.name}: seed {seed}: {fault}", flush=True)
    raise SystemExit(f"{fixture.name}: no seed of {tries} will do")
