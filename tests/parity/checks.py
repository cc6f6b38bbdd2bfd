"""Shows that a fixture hides nothing: every parameter, set to zero, must change a compared tensor.

The changes are measured with the recorded run's own inputs fed again to the part that the parameter belongs to (teacher
forcing), so a change is never lost in a different answer.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

import runs
from configs import Fixture

# The smallest change of a compared tensor that counts, relative to its largest value. Parity allows 1e-4.
MIN_CHANGE = 2e-2
MIN_STD = 0.1
# Softmax ignores an addition to all scores of a query, such as a bias of the keys without rotary positions.
INVARIANT = ("audio_tower.layers.", "k_proj.bias")


@dataclass
class Part:
    """A part of the model that can be run again by itself: the parameters it covers, and its outputs."""

    name: str
    prefixes: tuple[str, ...]
    run: Callable[[], list[torch.Tensor]]
    recorded: list[torch.Tensor]


def _thinker(model, fixture: Fixture, turns, questions) -> list[torch.Tensor]:
    out = []
    for index, turn in enumerate(turns):
        ids = torch.tensor([turn.prompt_ids + turn.tokens[:-1]])
        mels = runs.batch_mels([q.mel for q in questions[: index + 1]])
        with runs.each_audio_alone(model.thinker.model):
            got = model.thinker(
                input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True, use_cache=False, **mels
            )
        out += [got.logits[0, len(turn.prompt_ids) - 1 :], got.hidden_states[fixture.accept_hidden_layer][0]]
    return out


def _talker_prompt(model, fixture: Fixture, turn) -> list[torch.Tensor]:
    """The prompt's rows and the trailing text, projected again from the thinker's."""
    config, thinker = model.config, model.config.thinker_config
    prompt = torch.tensor(turn.prompt_ids)
    starts = (prompt == config.im_start_token_id).nonzero().flatten().tolist()
    special = torch.tensor([[config.tts_bos_token_id, config.tts_eos_token_id, config.tts_pad_token_id]])
    bos, eos, pad = model.talker.text_projection(model.thinker.get_input_embeddings()(special)).chunk(3, dim=1)
    rows = []
    for start, end in zip(starts, [*starts[1:], len(prompt)], strict=True):
        if prompt[start + 1] == config.user_token_id:
            mask = (prompt == thinker.audio_token_id)[None]
            rows += model._get_talker_user_parts(start, end, mask, turn.thinker_hidden[None], turn.thinker_embed[None])
    speaker = config.talker_config.speaker_id[fixture.speaker]
    answer, _, trailing = model._get_talker_assistant_parts(
        starts[-1], len(prompt) + len(turn.tokens) - 1, speaker, turn.thinker_embed[None], pad, bos, eos
    )
    return [torch.cat([*rows, answer[0]]), trailing[0]]


def _talker(model, turn) -> list[torch.Tensor]:
    """Logits and hidden rows of each step, from the recorded prompt, codes and trailing text."""
    residual = model.talker.code_predictor.get_input_embeddings()
    tables = [model.talker.get_input_embeddings(), *residual]
    frames = turn.codes.shape[1]
    text = torch.cat([turn.talker_trailing, turn.talker_pad.expand(max(0, frames - len(turn.talker_trailing)), -1)])
    steps = sum(table(codes) for table, codes in zip(tables, turn.codes, strict=True)) + text[:frames]
    inputs = torch.cat([turn.talker_prompt, steps])
    hidden = model.talker.model(inputs_embeds=inputs[None], use_cache=False).last_hidden_state[0]
    hidden = hidden[len(turn.talker_prompt) - 1 :]
    return [model.talker.codec_head(hidden), hidden]


def _predictor(model, turn) -> list[torch.Tensor]:
    predictor = model.talker.code_predictor
    first = model.talker.get_input_embeddings()(turn.codes[0])
    # Nothing follows the last codebook, so its table is not read.
    rest = [table(codes) for table, codes in zip(predictor.get_input_embeddings(), turn.codes[1:-1], strict=False)]
    inputs = torch.stack([turn.talker_hidden[:-1], first, *rest], dim=1)
    hidden = predictor.model(inputs_embeds=inputs, use_cache=False).last_hidden_state
    return [torch.stack([head(hidden[:, step + 1]) for step, head in enumerate(predictor.lm_head)], dim=1)]


def parts(model, fixture: Fixture, turns, questions) -> list[Part]:
    def each(run, *recorded):
        return lambda: [out for turn in turns for out in run(turn)], [row(t) for t in turns for row in recorded]

    prompt_run, prompt_recorded = each(
        lambda t: _talker_prompt(model, fixture, t), lambda t: t.talker_prompt, lambda t: t.talker_trailing
    )
    talker_run, talker_recorded = each(
        lambda t: _talker(model, t), lambda t: t.talker_logits, lambda t: t.talker_hidden
    )
    predictor_run, predictor_recorded = each(lambda t: _predictor(model, t), lambda t: t.predictor_logits)
    wave_run, wave_recorded = each(lambda t: [runs.decode(model, t.codes)], lambda t: runs.decode(model, t.codes))
    return [
        Part(
            "audio tower",
            ("thinker.model.audio_tower",),
            lambda: [runs.encode_audio(model, q.mel) for q in questions],
            [t.audio_tower for t in turns],
        ),
        Part(
            "thinker",
            ("thinker.model.language_model", "thinker.lm_head"),
            lambda: _thinker(model, fixture, turns, questions),
            [row for t in turns for row in (t.thinker_logits, t.thinker_hidden)],
        ),
        Part(
            "talker prompt",
            ("talker.text_projection", "talker.hidden_projection", "talker.model.codec_embedding"),
            prompt_run,
            prompt_recorded,
        ),
        Part(
            "talker",
            ("talker.model", "talker.codec_head", "talker.code_predictor.model.codec_embedding"),
            talker_run,
            talker_recorded,
        ),
        Part("code predictor", ("talker.code_predictor",), predictor_run, predictor_recorded),
        Part("code2wav", ("code2wav",), wave_run, wave_recorded),
    ]


def change(now: list[torch.Tensor], before: list[torch.Tensor]) -> float:
    """The largest change of any tensor, relative to its own largest value. Infinite where a value is not finite: `max`
    and comparisons with NaN would pass it.
    """
    return max(_change(a, b) for a, b in zip(now, before, strict=True))


def _change(now: torch.Tensor, before: torch.Tensor) -> float:
    moved = ((now - before).abs().max() / before.abs().max()).item()
    return moved if math.isfinite(moved) else math.inf


def _pieces(name: str, parameter: torch.Tensor):
    """A parameter as the blocks to zero: experts one by one, everything else whole."""
    if ".experts." in name:
        return [(f"{name}[{i}]", parameter[i]) for i in range(parameter.shape[0])]
    return [(name, parameter)]


def _zeroed(model, part: Part) -> dict[str, float]:
    """Changes of the part's outputs when each of its blocks is zeroed in turn."""
    before = part.run()
    replay = change(before, part.recorded)
    assert replay < 1e-4, f"{part.name}: run again, it differs from the recorded run by {replay:.1e}"
    changes = {}
    for name, parameter in model.named_parameters():
        if not name.startswith(part.prefixes) or all(mark in name for mark in INVARIANT):
            continue
        for piece, values in _pieces(name, parameter):
            kept = values.clone()
            values.zero_()
            changes[piece] = change(part.run(), before)
            values.copy_(kept)
    return changes


@torch.no_grad()
def weakest_blocks(model, fixture: Fixture, turns, questions) -> dict[str, dict]:
    """Zeroes every parameter in turn: for each part, how many blocks it has and the one that matters least."""
    changes = {part.name: _zeroed(model, part) for part in parts(model, fixture, turns, questions)}
    # The table of the last code feeds the talker only: a block counts by where it matters most.
    shared = changes["talker"].keys() & changes["code predictor"].keys()
    for name in shared:
        most = max(changes["talker"][name], changes["code predictor"][name])
        changes["talker"][name] = changes["code predictor"][name] = most
    seen = {piece.split("[")[0] for part in changes.values() for piece in part}
    unseen = [name for name, _ in model.named_parameters() if name not in seen]
    invariant = [name for name in unseen if all(mark in name for mark in INVARIANT)]
    rest = [name for name in unseen if name not in invariant and ".visual." not in name]
    assert not rest, f"no part covers {rest[:5]}"
    summary = {}
    for part, moved in changes.items():
        weakest = min(moved, key=moved.__getitem__)
        summary[part] = {"blocks": len(moved), "weakest": weakest, "change": moved[weakest]}
    return summary


@torch.no_grad()
def windows_matter(model, fixture: Fixture, turns, questions) -> dict[str, float]:
    """Changes of the outputs when an attention window is widened to everything, as by a reader that ignores it."""
    tower, wave = model.thinker.model.audio_tower, model.code2wav.pre_transformer
    moved = {}
    before = [runs.encode_audio(model, q.mel) for q in questions]
    kept, tower.n_window_infer = tower.n_window_infer, 10**6
    moved["audio attention"] = change([runs.encode_audio(model, q.mel) for q in questions], before)
    tower.n_window_infer = kept
    before = [runs.decode(model, t.codes) for t in turns]
    kept, wave.config.sliding_window = wave.config.sliding_window, 10**6
    moved["codec attention"] = change([runs.decode(model, t.codes) for t in turns], before)
    wave.config.sliding_window = kept
    return moved


@torch.no_grad()
def router_gap(model, fixture: Fixture, turns, questions) -> float | None:
    """The smallest lead, in router logits, of the last expert chosen over the first not chosen."""
    gaps, hooks = [], []
    for name, module in model.named_modules():
        if name.endswith("mlp.gate"):

            def lead(module, _inputs, outputs):
                ordered = outputs[0].sort(dim=-1, descending=True).values
                gaps.append((ordered[:, module.top_k - 1] - ordered[:, module.top_k]).min().item())

            hooks.append(module.register_forward_hook(lead))
    _thinker(model, fixture, turns, questions)
    for turn in turns:
        _talker(model, turn)
    for hook in hooks:
        hook.remove()
    return min(gaps, default=None)
