"""Makes the parity fixture of Qwen2.5-Omni with its reference implementation: `python make_fixtures.py`.

With `--check` it makes nothing: it runs the committed checkpoint again and compares with the committed tensors.
token2wav has a fixture of its own; its weights are in this checkpoint so that it is a whole one.
"""

import argparse
import json
import shutil
import sys
import warnings
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import GenerationConfig, Qwen2_5OmniForConditionalGeneration, WhisperFeatureExtractor

import configs
import draw
import runs
import signals
import token2wav
import tokens
import weights
from configs import FIXTURE, SPECIAL, Fixture
from runs import Question

FOLDER = Path(__file__).parent.parent / "fixtures"
VERSIONS = {"transformers": transformers.__version__, "torch": torch.__version__}
# How far the best choice leads at least, so that another order of summing makes none differently.
MIN_GAP = 5e-3
# Codes, and tokens, that the turns have at least, together.
MIN_DISTINCT = 15
MIN_STD = 0.1


def gap(scores: torch.Tensor) -> float:
    """The smallest lead of the best over the second best, over all rows."""
    best, second = scores.topk(2, dim=-1).values.unbind(-1)
    return (best - second).min().item()


def questions(fixture: Fixture, extractor) -> list[Question]:
    made = []
    for index, samples in enumerate(fixture.turns):
        audio = signals.speech(samples, seed=fixture.audio_seed + index)
        mel = signals.mel_streaming(extractor, audio, 2 * configs.AUDIO["n_window"])
        made.append(Question(torch.from_numpy(audio), mel))
    return made


def voices(tokenizer, fixture: Fixture) -> dict:
    bos = {name: tokens.special(tokenizer, f"<tts_bos_{name}>") for name in configs.REFERENCE_FRAMES}
    dit = configs.TOKEN2WAV["dit_config"]
    return draw.speakers(configs.REFERENCE_FRAMES, bos, dit["enc_emb_dim"], dit["mel_dim"], fixture.seed)


def drawn(fixture: Fixture, tokenizer, seed: int):
    """Weights drawn from `seed`, rounded to the checkpoint's dtype; the rows of stops still zero."""
    model = Qwen2_5OmniForConditionalGeneration._from_config(configs.build(fixture, tokenizer)).eval()
    draw.redraw(model, seed)
    token2wav.redraw(model.token2wav, seed)
    weights.favour(model.thinker.lm_head, tokens.speakable(tokenizer, SPECIAL), others=0.4)
    model.speaker_map = voices(tokenizer, fixture)
    with torch.no_grad():
        model.thinker.lm_head.weight[tokens.special(tokenizer, "<|im_end|>")] = 0
        # Ids that are no codes are for embeddings; the codec would fail on them.
        model.talker.codec_head.weight[fixture.codes :] = 0
    weights.round_to(model, getattr(torch, fixture.dtype))
    return model


def set_row(head, token: int, row: torch.Tensor | None, dtype: str) -> str | None:
    if row is None:
        return "no stop row"
    with torch.no_grad():
        head.weight[token] = row.to(getattr(torch, dtype)).float()
    return None


def stop_thinker(model, fixture: Fixture, tokenizer, asked) -> str | None:
    """Sets the thinker's stop row; or says why it cannot."""
    stop, evidence, said = tokens.special(tokenizer, "<|im_end|>"), [], set()
    for turn, length in enumerate(fixture.answers):
        # Earlier turns must end as they will.
        limits = dict(thinker_max_new_tokens=length, talker_max_new_tokens=1)
        made = talk_until(model, fixture, tokenizer, asked, turn, stop, limits)
        if gap(made.thinker_logits[:-1]) < MIN_GAP:
            return f"turn {turn}: the thinker is undecided"
        if any(token < len(SPECIAL) for token in made.tokens):
            return f"turn {turn}: a special token in the answer"
        rows = made.thinker_hidden[len(made.prompt_ids) - 1 :]
        evidence.append((rows, made.thinker_logits.max(-1).values))
        said |= set(made.tokens[:-1])
    if len(said) < MIN_DISTINCT:
        return f"only {len(said)} distinct tokens"
    return set_row(model.thinker.lm_head, stop, weights.stop_row(evidence), fixture.dtype)


def talk_until(model, fixture: Fixture, tokenizer, asked, last: int, stop: int, limits: dict) -> runs.Turn:
    """Turn `last` of a conversation whose turns all have their final lengths, before the stop rows are there."""
    talk = runs.Talk(tokenizer, fixture.system)
    for turn in range(last + 1):
        prompt = talk.ask(runs.audio_tokens(model, asked[turn].mel))
        mels = [q.mel for q in asked[: turn + 1]]
        given = limits | {"thinker_max_new_tokens": fixture.answers[turn]}
        made = runs.ask(model, fixture, turn, prompt, mels, stop, thinker_suppress_tokens=[stop], **given)
        talk.answered([*made.tokens[:-1], stop])
    return made


def stop_talker(model, fixture: Fixture, tokenizer, asked) -> str | None:
    """Sets the rows of both ids that end the speech; or says why it cannot."""
    talker, said = model.talker, set()
    # Hidden row, least and greatest score.
    conditions: dict[str, list[tuple[torch.Tensor, float, float]]] = {"end": [], "pad": []}
    ids = {"end": talker.codec_eos_token, "pad": talker.codec_pad_token}
    for turn, frames in enumerate(fixture.frames):
        limits = dict(talker_max_new_tokens=frames + 1, endless=list(range(fixture.codes, fixture.codes + 16)))
        made = runs.converse(model, fixture, tokenizer, asked, turn + 1, **limits)[-1]
        if len(made.tokens) != fixture.answers[turn]:
            return f"turn {turn}: the thinker stopped after {len(made.tokens)}"
        if gap(made.talker_scores[:-1]) < MIN_GAP:
            return f"turn {turn}: the talker is undecided"
        said |= set(made.codes[:-1])
        best = made.talker_scores.max(-1).values
        if best.min() < 2 * draw.MARGIN:
            return f"turn {turn}: a code of a low score"
        for name, rows in conditions.items():
            for step, (hidden, score) in enumerate(zip(made.talker_hidden, best.tolist(), strict=True)):
                low, high = -torch.inf, score - draw.MARGIN
                if step == frames:
                    # The padding's score is divided by the penalty.
                    factor = fixture.penalty if name == "pad" else 1.0
                    low, high = (
                        ((score + draw.MARGIN) * factor, torch.inf) if fixture.ends[turn] == name else (low, high)
                    )
                elif name == "pad" and turn == 0 and step == 5:
                    # Here it would end the speech if it did not count as said before.
                    low, high = score + 0.1 * draw.MARGIN, (score - 0.1 * draw.MARGIN) * fixture.penalty
                rows.append((hidden, low, high))
    if len(said) < MIN_DISTINCT:
        return f"only {len(said)} distinct codes"
    for name, rows in conditions.items():
        problem = set_row(talker.codec_head, ids[name], draw.row(rows), fixture.dtype)
        if problem:
            return f"{name}: {problem}"
    return None


def problem(model, fixture: Fixture, turns: list[runs.Turn], stop: int) -> str | None:
    """Returns the missing property of a finished conversation, if any."""
    ids = {"end": model.talker.codec_eos_token, "pad": model.talker.codec_pad_token}
    for index, turn in enumerate(turns):
        if turn.tokens[-1] != stop or len(turn.tokens) != fixture.answers[index]:
            return f"turn {index}: the thinker stopped after {len(turn.tokens)}"
        if turn.codes[-1] != ids[fixture.ends[index]] or len(turn.codes) != fixture.frames[index] + 1:
            return f"turn {index}: the talker stopped after {len(turn.codes)} by {turn.codes[-1]}"
        if max(turn.codes[:-1]) >= fixture.codes:
            return f"turn {index}: an id that is no code"
        for name, scores in (("thinker", turn.thinker_logits), ("talker", turn.talker_scores)):
            if gap(scores) < MIN_GAP:
                return f"turn {index}: the {name} is undecided by {gap(scores):.1e}"
    if not any((t.talker_logits.argmax(-1) == ids["pad"])[:-1].any() for t in turns):
        return "the padding never leads before the penalty"
    return None


def search(fixture: Fixture, tokenizer, asked, tries: int = 500):
    stop = tokens.special(tokenizer, "<|im_end|>")
    for seed in range(fixture.seed, fixture.seed + tries):
        model = drawn(fixture, tokenizer, seed)
        fault = stop_thinker(model, fixture, tokenizer, asked) or stop_talker(model, fixture, tokenizer, asked)
        fault = fault or problem(model, fixture, runs.converse(model, fixture, tokenizer, asked), stop)
        if fault is None:
            return model, seed
        print(f"{fixture.name}: seed {seed}: {fault}", flush=True)
    raise SystemExit(f"{fixture.name}: no seed of {tries} will do")


def save_checkpoint(model, fixture: Fixture, tokenizer, extractor, folder: Path) -> None:
    """The files of a published checkpoint, and the speakers as they are read here."""
    model = model.to(getattr(torch, fixture.dtype))
    model.generation_config = GenerationConfig(eos_token_id=tokens.special(tokenizer, "<|im_end|>"), pad_token_id=0)
    model.save_pretrained(folder)
    torch.save(model.speaker_map, folder / "spk_dict.pt")
    extractor.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))


def load(folder: Path):
    """A checkpoint as a reader gets it, in f32."""
    return Qwen2_5OmniForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()


def tensors(turns: list[runs.Turn], asked: list[Question]) -> dict[str, torch.Tensor]:
    """The compared tensors under the names that README.md lists."""
    out = {}
    for index, (turn, question) in enumerate(zip(turns, asked, strict=True)):
        named = {
            "audio": question.audio,
            "mel": question.mel,
            "audio_tower": turn.audio_tower,
            "thinker.prompt_ids": torch.tensor(turn.prompt_ids),
            "thinker.positions": turn.thinker_positions,
            "thinker.tokens": torch.tensor(turn.tokens),
            "thinker.logits": turn.thinker_logits,
            "thinker.handed": turn.handed,
            "talker.prompt": turn.talker_prompt,
            "talker.reply": turn.talker_reply,
            "talker.positions": turn.talker_positions,
            "talker.logits": turn.talker_logits,
            "talker.hidden": turn.talker_hidden,
            "codes": torch.tensor(turn.codes),
        }
        for name, value in named.items():
            dtype = torch.float32 if value.is_floating_point() else torch.int32
            out[f"turn{index}.{name}"] = value.to(dtype).contiguous()
    return out


def describe(fixture: Fixture, seed: int, turns, asked, tokenizer, expected) -> dict:
    stds = {name: round(t.std().item(), 4) for name, t in expected.items() if t.is_floating_point()}
    assert all(std >= MIN_STD for name, std in stds.items() if not name.endswith(".audio")), stds
    return {
        "versions": VERSIONS,
        "seed": seed,
        "dtype": fixture.dtype,
        "settings": {"system": fixture.system, "talker_repetition_penalty": fixture.penalty, "do_sample": False},
        "turns": [
            {
                "text": tokenizer.decode(turn.tokens),
                "speaker": speaker,
                "ends_by": end,
                "audio_samples": len(question.audio),
                "mel_frames": question.mel.shape[1],
                "audio_tokens": len(turn.audio_tower),
                "prompt_tokens": len(turn.prompt_ids),
                "answer_tokens": len(turn.tokens),
                "codes": len(turn.codes) - 1,
                "top_two_gap": {"thinker": gap(turn.thinker_logits), "talker": gap(turn.talker_scores)},
            }
            for turn, question, speaker, end in zip(turns, asked, fixture.speakers, fixture.ends, strict=True)
        ],
        "std": stds,
    }


def make(fixture: Fixture) -> None:
    tokenizer = tokens.build(fixture.vocab, SPECIAL)
    extractor = WhisperFeatureExtractor(
        feature_size=configs.AUDIO["num_mel_bins"], sampling_rate=signals.SAMPLE_RATE, hop_length=160, n_fft=400
    )
    asked = questions(fixture, extractor)
    model, seed = search(fixture, tokenizer, asked)
    folder = FOLDER / fixture.name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "checkpoint").mkdir(parents=True)
    save_checkpoint(model, fixture, tokenizer, extractor, folder / "checkpoint")
    # All outputs come from the saved checkpoint, not from the model in memory.
    model = load(folder / "checkpoint")
    turns = runs.converse(model, fixture, tokenizer, asked)
    fault = problem(model, fixture, turns, tokens.special(tokenizer, "<|im_end|>"))
    assert fault is None, fault
    expected = tensors(turns, asked)
    summary = describe(fixture, seed, turns, asked, tokenizer, expected)
    save_file(expected, folder / "expected.safetensors")
    (folder / "expected.json").write_text(json.dumps(summary, indent=1) + "\n")
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(json.dumps(summary, indent=1))
    print(f"{fixture.name}: seed {seed}, {size / 1e6:.2f} MB")


def check(fixture: Fixture) -> None:
    """Runs the committed checkpoint again, with nothing but its own files, and compares."""
    folder = FOLDER / fixture.name
    expected = load_file(folder / "expected.safetensors")
    tokenizer = Tokenizer.from_file(str(folder / "checkpoint" / "tokenizer.json"))
    asked = questions(fixture, WhisperFeatureExtractor.from_pretrained(folder / "checkpoint"))
    now = tensors(runs.converse(load(folder / "checkpoint"), fixture, tokenizer, asked), asked)
    assert now.keys() == expected.keys()
    worst = 0.0
    for name, tensor in expected.items():
        if tensor.is_floating_point():
            worst = max(worst, ((now[name] - tensor).abs().max() / tensor.abs().max()).item())
        else:
            assert torch.equal(now[name], tensor), name
    assert worst < 1e-5, worst
    print(f"{fixture.name}: {len(expected)} tensors as committed, within {worst:.1e} of the largest value of each")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare the committed fixture instead of making it")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.filterwarnings("ignore")
    (check if arguments.check else make)(FIXTURE)


if __name__ == "__main__":
    main()
