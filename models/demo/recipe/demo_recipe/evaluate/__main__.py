"""`python -m demo_recipe.evaluate`: what `make eval-model` runs. See `--help`."""

from __future__ import annotations

import argparse
import json
import shutil
import time
import wave
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TypeVar

import numpy as np
from websockets.exceptions import WebSocketException

from .. import kokoro
from ..domain import Turn
from ..held_out import KINDS, Held, load
from . import table
from .ask import Answer, RefusedError, converse
from .conditions import CLEAN, CONDITIONS, WIRE_RATE, Conditions, people
from .ear import Ear
from .gateway import Gateway
from .naturalness import Opinion
from .table import PEOPLE, Judged

ROOT = Path(__file__).parents[5]
# Answers that wait for the recogniser, which is slower than the model.
WAITING = 16
SAY_EVERY_S = 5.0
# Of a person's recording nothing is right; whether the model declines is judged by its transcript.
NOT_A_QUESTION = Turn("people", "", "", ())
T = TypeVar("T")


@dataclass(frozen=True)
class Call:
    """One conversation to be held under one condition."""

    kind: str
    index: int
    condition: str
    held: Held


class Progress:
    """Says how far the calls are, and how far the recogniser."""

    def __init__(self, calls: int) -> None:
        self._calls, self._start, self._said = calls, time.monotonic(), 0.0

    def say(self, asked: int, waiting: int, what: str) -> None:
        now = time.monotonic()
        if now - self._said < SAY_EVERY_S and asked < self._calls:
            return
        self._said = now
        left = (now - self._start) / max(1, asked) * (self._calls - asked)
        print(
            f"eval-model: {asked} of {self._calls} calls, {left:.0f} s left; {what}, {waiting} answers wait for the "
            "recogniser",
            flush=True,
        )


class Judge:
    """Collects answers, lets the ear hear them, and gives the verdicts."""

    def __init__(self, ear: Ear, answers: Path, recordings: Path | None) -> None:
        self.judged: list[Judged] = []
        self._ear, self._recordings = ear, recordings
        if recordings:
            recordings.mkdir(parents=True, exist_ok=True)
        answers.parent.mkdir(parents=True, exist_ok=True)
        self._answers = answers.open("w")
        self._waiting: deque[tuple[dict, Future[str]]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, name: str, answer: Answer, **about: object) -> None:
        """Another answer; waits for the ear when too many are there already."""
        if self._recordings:
            save(self._recordings / f"{name}.wav", answer.sound)
        about |= {"transcript": answer.transcript, "seconds": round(answer.seconds, 2)}
        self._waiting.append((about, self._ear.hear(answer.sound)))
        while len(self._waiting) > WAITING:
            self._next()

    def finish(self) -> None:
        """Waits for all that is not judged."""
        while self._waiting:
            self._next()
        self._answers.close()

    def _next(self) -> None:
        about, heard = self._waiting.popleft()
        self.judged.append(Judged(heard=heard.result(), **about))
        print(self.judged[-1].line(), file=self._answers, flush=True)


def main() -> None:
    options = arguments()
    missing = [program for program in ("espeak-ng", "flite") if not shutil.which(program)]
    if missing:
        raise SystemExit(
            f"eval-model: there is no {' and no '.join(missing)} to speak the questions: scripts/setup.sh speech"
        )
    if kokoro.missing():
        raise SystemExit(f"eval-model: {kokoro.missing()}")
    held_out = {kind: few(load(options.held_out / f"{kind}.json"), options.calls) for kind in KINDS}
    recordings = few(people(options.people), options.calls) if options.people else []
    if not recordings:
        print("eval-model: no recordings of people to ask; `scripts/setup.sh speech` fetches them", flush=True)
    calls = [
        Call(kind, index, condition, held)
        for condition in CONDITIONS
        for kind in KINDS
        if kind == "single" or condition == CLEAN
        for index, held in held_out[kind]
    ]
    print(f"eval-model: {len(calls) + len(recordings)} calls to {options.model}", flush=True)
    with Ear() as ear, Gateway(options.gateway, options.model, options.set) as gateway:
        conditions = Conditions(load(options.held_out / "single.json"))
        judge = Judge(ear, options.answers, options.recordings)
        progress = Progress(len(calls) + len(recordings))
        seconds, sounds, used = 0.0, [], gateway.processor_seconds()
        for asked, call in enumerate(calls):
            answers = asked_of(gateway, conditions.turns(call.held, call.kind, call.index, call.condition))
            for position, (turn, answer) in enumerate(zip(call.held.turns, answers, strict=True)):
                judge.add(
                    f"{call.condition}-{call.kind}-{call.index:03}-{position}",
                    answer,
                    kind=call.kind,
                    condition=call.condition,
                    voice=call.held.voice.name,
                    turn=turn,
                    last=position + 1 == len(answers),
                )
                seconds += answer.seconds
                if call.condition == CLEAN:
                    sounds.append(answer.sound)
            progress.say(asked + 1, len(judge), f"{call.kind}, {call.condition}")
        used = gateway.processor_seconds() - used
        for asked, (_, recording) in enumerate(recordings, len(calls)):
            (answer,) = asked_of(gateway, [recording.pcm])
            judge.add(
                f"people-{recording.name}",
                answer,
                kind=PEOPLE,
                condition=CLEAN,
                voice=recording.name,
                turn=NOT_A_QUESTION,
                last=True,
            )
            progress.say(asked + 1, len(judge), "recordings of people")
        judge.finish()
    described = options.held_out / "voice.json"
    voice = json.loads(described.read_text()) if described.exists() else None
    rows = table.answer_rows(judge.judged, voice) + table.sound_rows(sounds, frame_samples(options.model), voice)
    rows.append(table.opinion_row(Opinion().mean(sounds, WIRE_RATE), voice))
    rows.append(table.speed_row(used, seconds))
    finish(rows, judge.judged, options)


def asked_of(gateway: Gateway, turns: list[bytes]) -> list[Answer]:
    """The answers, or the end of everything with what the gateway wrote."""
    try:
        return converse(gateway.url, turns)
    except (RefusedError, WebSocketException, OSError) as error:
        raise SystemExit(f"eval-model: {error}. The gateway's last lines:\n{gateway.log()}") from error


def finish(rows: list[table.Row], judged: list[Judged], options: argparse.Namespace) -> None:
    """Prints and writes what was found."""
    written = table.markdown(rows)
    table.report(rows, options.report)
    topics, voices = (
        table.apart(judged, "topic", lambda j: j.turn.topic),
        table.apart(judged, "voice", lambda j: j.voice),
    )
    print(f"\n{topics}\n\n{voices}\n\n{table.aligned(written)}\n")
    print(f"eval-model: wrote {options.report}; each answer is in {options.answers}", flush=True)
    if options.card:
        path = options.model / "README.md"
        head = f"On {table.today()}, {table.machine()}.\n\n"
        path.write_text(table.card(path.read_text(), head + written))
        print(f"eval-model: wrote the table into {path}", flush=True)


def few(every: list[T], count: int | None) -> list[tuple[int, T]]:
    """All with their places, or `count` of them evenly spread."""
    chosen = (
        range(len(every)) if count is None or count >= len(every) else (k * len(every) // count for k in range(count))
    )
    return [(index, every[index]) for index in chosen]


def frame_samples(model: Path) -> int:
    """Samples of a codec frame of a checkpoint."""
    code2wav = json.loads((model / "config.json").read_text())["code2wav_config"]
    return prod(code2wav["upsample_rates"]) * prod(code2wav["upsampling_ratios"])


def save(path: Path, sound: np.ndarray) -> None:
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(WIRE_RATE)
        out.writeframes(np.round(sound * 32768.0).astype("<i2").tobytes())


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m demo_recipe.evaluate",
        description="Asks a model its held-out questions through the gateway and judges the answers.",
    )
    report = ROOT / "target/report"
    parser.add_argument(
        "--gateway", type=Path, default=ROOT / "target/release/repartee", help="the binary to serve with"
    )
    parser.add_argument("--model", type=Path, default=ROOT / "models/demo", help="folder of the checkpoint")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SETTING=VALUE",
        help="a setting of the gateway, such as engine.weights=int8",
    )
    parser.add_argument("--held-out", type=Path, default=ROOT / "models/demo/held-out", help="folder of the lists")
    parser.add_argument(
        "--people",
        type=Path,
        help="where Debian's pocketsphinx-testdata is unpacked; without it no human speech is asked",
    )
    parser.add_argument(
        "--calls", type=int, help="at most so many conversations of each kind, evenly spread (default: all)"
    )
    parser.add_argument("--report", type=Path, default=report / "model.json")
    parser.add_argument(
        "--answers",
        type=Path,
        default=report / "model-answers.jsonl",
        help="each answer with its verdicts, as JSON lines",
    )
    parser.add_argument("--recordings", type=Path, help="keep the sound of each answer in this folder")
    parser.add_argument("--card", action="store_true", help="put the table into the model's README.md")
    options = parser.parse_args()
    if options.calls is not None and options.calls < 1:
        parser.error("--calls must be at least 1")
    if options.card and (options.calls is not None or options.set):
        parser.error("--card needs all conversations and no settings: leave --calls and --set away")
    return options


if __name__ == "__main__":
    main()
