"""Shared code of the Python clients: the turns to take, their answers, and the printed results.

A script gets an ADDRESS (host:port) and a SCENARIO, the path of a JSON file:

    {"folder": for recordings, "rate": of all sound, "turns": [{"say": a recording, "until": when to go on}],
     "key": what opens the server, "certificate": the server's, if it speaks TLS,
     "function": null, or one to offer: {"name", "description", "parameters" (JSON schema), "result" (what it answers)}}

Recordings are mono, 16 bit, little endian. `until` is `finished` (the answer was made and played to its end), `held`
(half a second of it was played; the server waits to be interrupted before it makes all of it) or `playing` (all of it
was made, half a second of it was played). What is printed is one JSON object: {"client", "answers": [{"transcript",
"sound", "interrupted"}], "errors", "events", "calls": with what arguments the function was called}. An answer without
sound, such as a call, is none.
"""

import asyncio
import json
import pathlib
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from importlib.metadata import version

# Sound is said in pieces of this length.
PIECE_S = 0.1
# Heard part of an answer before the interruption.
HEARD_MS = 500
# Timeout of one answer, long enough for a busy machine.
ANSWERED_WITHIN_S = 40


@dataclass
class Answer:
    """One answer as the client hands it out."""

    transcript: str = ""
    sound: bytearray = field(default_factory=bytearray, repr=False)
    # All of it was made, or it was stopped in the making.
    made: bool = False
    interrupted: bool = False
    # When its first sound came, by this machine's clock.
    began: float | None = None
    # Its played part, if the client plays audio; otherwise by the clock.
    played_by_client_ms: float | None = None
    # All of it was played, where the server says so.
    ended: bool | None = None

    def length_ms(self, rate: int) -> float:
        return len(self.sound) / 2 / rate * 1000

    def played_ms(self, rate: int) -> float:
        """Returns its heard part: it plays from its first sound on."""
        if self.played_by_client_ms is not None:
            return self.played_by_client_ms
        elapsed = 0 if self.began is None else (time.monotonic() - self.began) * 1000
        return min(elapsed, self.length_ms(rate))

    def is_played(self, rate: int) -> bool:
        return self.played_ms(rate) >= self.length_ms(rate) if self.ended is None else self.ended


class Scenario:
    """The turns of one conversation, and their results."""

    def __init__(self, path: str) -> None:
        described = json.loads(pathlib.Path(path).read_text())
        self.folder = pathlib.Path(described["folder"])
        self.rate: int = described["rate"]
        self.turns: list[dict] = described["turns"]
        self.key: str = described["key"]
        self.function: dict | None = described["function"]
        self.calls: list[dict] = []
        self.answers: list[Answer] = []
        self.errors: list[str] = []
        self.events: list[dict] = []
        self._by_name: dict[str, Answer] = {}

    def answer(self, name: str) -> Answer:
        """The answer that the client calls by this name."""
        if name not in self._by_name:
            self._by_name[name] = Answer()
            self.answers.append(self._by_name[name])
        return self._by_name[name]

    def sounded(self, answer: Answer, sound: bytes) -> None:
        """More of its sound came."""
        if answer.began is None:
            answer.began = time.monotonic()
        answer.sound += sound

    def call(self, arguments: dict) -> str:
        """The function itself."""
        assert self.function is not None, "no function was declared"
        self.calls.append(arguments)
        return self.function["result"]

    def stopped(self, answer: Answer) -> None:
        """Marks the end of its playback. Some clients report this for fully played answers too."""
        answer.interrupted |= not (answer.made and answer.is_played(self.rate))

    async def pieces(self, turn: dict, pace: float = 0) -> AsyncIterator[bytes]:
        """Yields the recording of a turn; with `pace` 1 in real time, with 0 at once."""
        said = pathlib.Path(turn["say"]).read_bytes()  # noqa: ASYNC240 (a small file, before the clock starts)
        size = int(self.rate * PIECE_S) * 2
        begun = time.monotonic()
        for start in range(0, len(said), size):
            yield said[start : start + size]
            due = begun + (start + size) / 2 / self.rate * pace
            await asyncio.sleep(max(0, due - time.monotonic()))

    async def answered(self, index: int) -> None:
        """Returns when the answer to this turn is as far as the turn says."""
        deadline = time.monotonic() + ANSWERED_WITHIN_S
        while not self._is_far_enough(index):
            if self.errors:
                raise SystemExit(f"turn {index}: {self.errors}")
            if time.monotonic() > deadline:
                seen = [event["type"] for event in self.events]
                raise SystemExit(f"turn {index} has no answer in time: {self.answers[index:]} {seen}")
            await asyncio.sleep(0.02)

    def _is_far_enough(self, index: int) -> bool:
        if len(self.answers) <= index:
            return False
        answer, rate = self.answers[index], self.rate
        match self.turns[index]["until"]:
            case "finished":
                return answer.made and answer.is_played(rate)
            case "held":
                return answer.played_ms(rate) >= HEARD_MS
            case "playing":
                return answer.made and answer.played_ms(rate) >= HEARD_MS
            case other:
                raise SystemExit(f"there is no {other}")

    def report(self, package: str) -> None:
        """Prints the results of a client of this package."""
        self.report_as(f"{package} {version(package)}")

    def report_as(self, client: str) -> None:
        """Prints the results of a client of this name and version."""
        answers = []
        for index, answer in enumerate(self.answers):
            sound = self.folder / f"answer-{index}.pcm"
            sound.write_bytes(answer.sound)
            answers.append({"transcript": answer.transcript, "sound": str(sound), "interrupted": answer.interrupted})
        seen = {"errors": self.errors, "events": self.events, "calls": self.calls}
        print(json.dumps({"client": client, "answers": answers, **seen}))


def arguments() -> tuple[str, Scenario]:
    address, path = sys.argv[1:]
    return address, Scenario(path)
