"""Step `judge`: a thinker by the frozen lists, in the judge's conditions, as `make eval-model` asks them but without
gateway and voice.

Says how many answers are right by the kind of voice that asks, and how well turns are written down when the gateway's
transcription asks for it. The lists' sound is kept in `questions/frozen` of the work folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from scipy.signal import resample_poly

from . import questions, thinker_judge, tokenizer
from .domain import Turn
from .evaluate import words
from .evaluate.conditions import CLEAN, CONDITIONS, WIRE_RATE, Conditions, people
from .held_out import KINDS, SEED, load
from .questions import RATE, Spoken
from .thinker_data import TRANSCRIBE, Template
from .thinker_judge import Judged
from .thinker_model import Thinker, warm_embeddings

LISTS = Path(__file__).parents[2] / "held-out"
RECORDINGS = Path(__file__).parents[4] / "target/tools/people"


def judge(work: Path, checkpoint: Path | None, device: torch.device, threads: int) -> None:
    """Prints a line for each kind of question and condition."""
    torch.set_num_threads(threads)
    trained = work / "thinker.pt"
    if not trained.exists() and not checkpoint:
        raise SystemExit(f"there is no {trained}: run the step `thinker`, or name a checkpoint with --warm-start")
    if checkpoint:
        warm_embeddings(work, checkpoint)
    vocabulary = tokenizer.load(work)
    model = Thinker(vocabulary, tokenizer.embeddings(work)).eval()
    if trained.exists():
        model.reference.load_state_dict(torch.load(trained, map_location="cpu", weights_only=True)["model"])
    else:
        model.warm_start(checkpoint, vocabulary)
    model.to(device)
    template = Template(vocabulary)
    print(f"judge: {trained if trained.exists() else checkpoint}", flush=True)
    for kind, condition, talks in asked(work):
        judged = thinker_judge.answers(model, template, talks, device)
        if kind in ("follow-up", "memory"):
            # The turns before are asked among the single questions.
            judged = [one for one in judged if one.position + 1 == len(talks[one.talk])]
        say(f"{kind}, {condition}", judged, declines if kind in ("unknown", "people") else is_right)
        if kind == "single" and condition == CLEAN:
            written = thinker_judge.answers(model, template, talks, device, TRANSCRIBE)
            errors = sum((words.errors(one.turn.question, one.answer) for one in written), words.Errors(0, 0))
            same = sum(words.words(one.answer) == words.words(one.turn.question) for one in written)
            print(
                f"written down, {condition}: word error rate {errors.rate:.3f}, {same} of {len(written)} without an "
                "error",
                flush=True,
            )


def declines(one: Judged) -> bool:
    return words.declines(one.answer)


def is_right(one: Judged) -> bool:
    return one.right


def asked(work: Path) -> Iterator[tuple[str, str, list[list[Spoken]]]]:
    """Kind, condition and conversations of all that is judged."""
    lists = {kind: load(LISTS / f"{kind}.json") for kind in KINDS}
    conditions = Conditions(lists["single"])
    for kind in KINDS:
        path = work / "questions/frozen" / kind / "0000"
        if not path.with_suffix(".json").exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            questions.store(path, [(held.voice, held.turns) for held in lists[kind]])
        talks = questions.load(path.parent)
        for condition in CONDITIONS if kind == "single" else (CLEAN,):

            def as_judged(one: Spoken, *place: int, kind: str = kind, condition: str = condition) -> Spoken:
                return Spoken(
                    quantised(conditions.changed(one.sound, (SEED, KINDS.index(kind), *place), condition)),
                    one.voice,
                    one.turn,
                )

            yield (
                kind,
                condition,
                [[as_judged(one, index, turn) for turn, one in enumerate(talk)] for index, talk in enumerate(talks)],
            )
    recorded = []
    for recording in people(RECORDINGS):
        sound = resample_poly(np.frombuffer(recording.pcm, "<i2").astype(np.float32), RATE // 8000, WIRE_RATE // 8000)
        recorded.append([Spoken(quantised(sound / 32768.0), f"people {recording.name}", Turn("people", "", "", ()))])
    if recorded:
        yield "people", CLEAN, recorded


def quantised(sound: np.ndarray) -> np.ndarray:
    return np.clip(np.round(sound * 32768.0), -32768, 32767).astype(np.int16)


def say(what: str, judged: list[Judged], right: Callable[[Judged], bool]) -> None:
    """A line with the share of all and of each kind of voice, and one with that of each voice."""

    def shares(name: Callable[[Judged], str]) -> str:
        groups: dict[str, list[bool]] = {}
        for one in judged:
            groups.setdefault(name(one), []).append(right(one))
        return ", ".join(
            f"{key} {sum(found) / len(found):.2f} of {len(found)}" for key, found in sorted(groups.items())
        )

    print(
        f"{what}: {sum(map(right, judged)) / len(judged):.3f} of {len(judged)}; "
        f"{shares(lambda one: one.voice.split()[0])}",
        flush=True,
    )
    if what == f"single, {CLEAN}":
        print(f"  {shares(lambda one: one.voice)}", flush=True)
