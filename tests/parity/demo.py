"""Makes the fixture `demo`, what the reference implementation says with the shipped weights: `python demo.py`, after
`models/demo` changes.

With `--check` it makes nothing: it runs the shipped weights again and compares with the committed fixture. See
README.md.
"""

import argparse
import json
import wave
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerFast, Qwen3OmniMoeForConditionalGeneration, WhisperFeatureExtractor

import checks
import runs
import signals
from make_fixtures import FOLDER, VERSIONS, tensors
from runs import Question, Turn

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "models" / "demo"
QUESTIONS = ROOT / "tests" / "questions"
# Of the first of these conversations in which nothing is undecided every stage's tensors are kept; of the list of
# questions, each in a conversation of its own, tokens and codes.
CONVERSATIONS = (
    ("name-anna.wav", "what-is-my-name.wav"),
    ("name-thomas.wav", "what-is-my-name.wav"),
    ("favorite-color-blue.wav", "favorite-food.wav"),
    ("three-plus-four.wav", "capital-of-france.wav"),
    ("can-you-hear-me.wav", "thank-you.wav"),
)
# Two scores, each off by as much as the engine's may be (1e-4 of the largest), change places within this share of the
# largest: what leads by less may be chosen otherwise where sums are added up in another order. Nothing from there on is
# compared.
UNDECIDED = 2e-4


@dataclass(frozen=True)
class Run:
    """A run's part of a fixture's configuration, from the files of a checkpoint."""

    speaker: str
    accept_hidden_layer: int
    talker_repetition_penalty: float
    limits: dict = field(default_factory=dict)
    system: str | None = None

    @staticmethod
    def of(model, generation: dict) -> "Run":
        talker = model.config.talker_config
        (speaker,) = talker.speaker_id
        limits = {name: generation[name] for name in ("thinker_max_new_tokens", "talker_max_new_tokens")}
        return Run(speaker, talker.accept_hidden_layer, generation["talker_repetition_penalty"], limits)


def ask(file: str, extractor: WhisperFeatureExtractor, window: int) -> Question:
    with wave.open(str(QUESTIONS / file)) as sound:
        assert (sound.getframerate(), sound.getnchannels(), sound.getsampwidth()) == (signals.SAMPLE_RATE, 1, 2), file
        audio = np.frombuffer(sound.readframes(sound.getnframes()), np.int16).astype(np.float32) / 32768
    reference = torch.as_tensor(signals.mel_reference(extractor, audio))
    return Question(torch.from_numpy(audio), signals.mel_streaming(extractor, audio, window), reference)


def decided(scores: torch.Tensor) -> torch.Tensor:
    """Of each row of scores `[.., choices]`, -inf where a choice is ruled out, whether its best leads clearly."""
    best, second = scores.topk(2, dim=-1).values.unbind(-1)
    return best - second > UNDECIDED * scores.where(scores.isfinite(), 0).abs().amax(-1)


def decided_frames(turn: Turn) -> int:
    """Number of codec frames before the first code that another order of sums might choose otherwise; one more than
    there are if there is none, the end of speech included.
    """
    sure = decided(turn.talker_scores)
    sure[:-1] &= decided(turn.predictor_logits).all(-1)
    return len(sure) if sure.all() else int(sure.int().argmin())


def checksum(path: Path) -> str:
    """Tells weights apart: the sum of the file's little-endian 64-bit words, of which the last is filled with zeros."""
    data = path.read_bytes()
    return f"{int(np.frombuffer(data + bytes(-len(data) % 8), '<u8').sum(dtype=np.uint64)):016x}"


def make() -> tuple[dict[str, torch.Tensor], dict]:
    """The tensors and the facts."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(MODEL).backend_tokenizer
    extractor = WhisperFeatureExtractor.from_pretrained(MODEL)
    model = Qwen3OmniMoeForConditionalGeneration.from_pretrained(MODEL, dtype=torch.float32).eval()
    run = Run.of(model, json.loads((MODEL / "generation_config.json").read_text()))
    window = model.config.thinker_config.audio_config.n_window_infer
    for files in CONVERSATIONS:
        asked = [ask(file, extractor, window) for file in files]
        turns = runs.converse(model, run, tokenizer, asked)
        if all(
            decided(turn.thinker_logits).all() and decided_frames(turn) == len(turn.talker_scores) for turn in turns
        ):
            break
        print(f"{' '.join(files)}: undecided", flush=True)
    else:
        raise SystemExit(
            "every conversation has a choice that another order of sums might change: add others to CONVERSATIONS"
        )
    out = tensors(model, turns, asked)

    answers = []
    for index, listed in enumerate(json.loads((QUESTIONS / "questions.json").read_text())):
        (answer,) = runs.converse(model, run, tokenizer, [ask(listed["file"], extractor, window)])
        said = decided(answer.thinker_logits)
        assert said.all(), f"{listed['file']}: the transcript is undecided"
        out[f"answer{index}.codes"] = answer.codes.to(torch.int32).contiguous()
        text = tokenizer.decode(answer.tokens)
        answers.append(
            {
                "file": listed["file"],
                "text": text,
                "prompt_tokens": len(answer.prompt_ids),
                "frames": answer.codes.shape[1],
                "decided_frames": decided_frames(answer),
            }
        )
        print(
            f"{listed['file']}: {text} {answers[-1]['decided_frames']} of {answers[-1]['frames'] + 1} frames decided",
            flush=True,
        )
    facts = {
        "versions": VERSIONS,
        "weights": checksum(MODEL / "model.safetensors"),
        "settings": {
            "speaker": run.speaker,
            "system": None,
            "talker_repetition_penalty": run.talker_repetition_penalty,
            **run.limits,
        },
        "turns": [
            {
                "file": file,
                "text": tokenizer.decode(turn.tokens),
                "prompt_tokens": len(turn.prompt_ids),
                "answer_tokens": len(turn.tokens),
                "frames": turn.codes.shape[1],
            }
            for file, turn in zip(files, turns, strict=True)
        ],
        "answers": answers,
        "std": {name: round(t.std().item(), 4) for name, t in out.items() if t.is_floating_point()},
    }
    return out, facts


def compare(now: dict[str, torch.Tensor], facts: dict) -> None:
    folder = FOLDER / "demo"
    committed = json.loads((folder / "expected.json").read_text())
    assert committed["weights"] == facts["weights"], (
        "models/demo has other weights than the fixture: make it anew with `python demo.py`"
    )
    assert committed == facts, "other facts than those committed"
    expected, worst = load_file(folder / "expected.safetensors"), 0.0
    assert now.keys() == expected.keys()
    for name, tensor in expected.items():
        if tensor.is_floating_point():
            worst = max(worst, checks.change([now[name]], [tensor]))
        else:
            assert torch.equal(now[name], tensor), name
    assert worst < 1e-5, worst
    print(f"demo: {len(expected)} tensors as committed, within {worst:.1e} of the largest value of each")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare the committed fixture instead of making it")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    out, facts = make()
    if arguments.check:
        compare(out, facts)
        return
    folder = FOLDER / "demo"
    folder.mkdir(exist_ok=True)
    save_file(out, folder / "expected.safetensors")
    (folder / "expected.json").write_text(json.dumps(facts, indent=1) + "\n")
    size = sum(file.stat().st_size for file in folder.iterdir())
    sure = sum(min(a["decided_frames"], a["frames"]) for a in facts["answers"]) / sum(
        a["frames"] for a in facts["answers"]
    )
    print(f"demo: {size / 1e6:.2f} MB; of the answers {100 * sure:.1f} % of the frames are decided")


if __name__ == "__main__":
    main()
