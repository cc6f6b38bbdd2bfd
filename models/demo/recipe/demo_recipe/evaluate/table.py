"""From judged answers to rows, and from rows to the terminal, the report and the model card."""

from __future__ import annotations

import datetime
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ..domain import Turn
from . import sound, words
from .conditions import CLEAN, CONDITIONS, NOISE, NOISE_DECIBELS, TELEPHONE

BEGIN, END = "<!-- eval-model: begin -->", "<!-- eval-model: end -->"
PEOPLE = "people"  # the kind of conversation that recordings of people make
LABELS = {CLEAN: "clean", NOISE: f"noise at {NOISE_DECIBELS:.0f} dB", TELEPHONE: "telephone band"}


@dataclass(frozen=True)
class Judged:
    """A turn with what came back for it."""

    kind: str
    condition: str
    voice: str
    turn: Turn
    last: bool  # of its conversation
    transcript: str
    heard: str
    seconds: float

    @property
    def right_text(self) -> bool:
        return words.right(self.turn, self.transcript)

    @property
    def right_heard(self) -> bool:
        return words.right(self.turn, self.heard)

    def line(self) -> str:
        """As a line of JSON."""
        return json.dumps(asdict(self) | {"right_text": self.right_text, "right_heard": self.right_heard})


@dataclass(frozen=True)
class Row:
    """One measure. `aim` and `more_is_better` are None where nothing is aimed at."""

    measure: str
    label: str
    value: float
    unit: str
    aim: float | None = None
    more_is_better: bool | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Above 1 when the aim is reached with room to spare."""
        if self.aim is None or not self.value or np.isnan(self.value):
            return None
        return self.value / self.aim if self.more_is_better else self.aim / self.value

    def written(self, value: float | None) -> str:
        if value is None:
            return ""
        if np.isnan(value):
            return "none"
        return f"{value:.1f} %" if self.unit == "%" else f"{value:.3g} {self.unit}".strip()

    @property
    def aimed(self) -> str:
        if self.aim is None:
            return "reported"
        return f"{self.written(self.aim).replace('.0 %', ' %')} or {'more' if self.more_is_better else 'less'}"


def share(judged: Sequence[Judged], verdict: Callable[[Judged], bool]) -> float:
    """In percent."""
    return 100 * sum(map(verdict, judged)) / len(judged) if judged else float("nan")


def declined(_: Turn, text: str) -> bool:
    """The right answer outside the domain."""
    return words.declines(text)


def answer_rows(judged: Sequence[Judged], voice: dict | None = None) -> list[Row]:
    """Rows of the answers' correctness, by transcript and by ear. `voice` is `held-out/voice.json`."""
    rows = []

    def judged_as(
        measure: str,
        label: str,
        chosen: Sequence[Judged],
        aim: float | None,
        verdict: Callable[[Turn, str], bool],
        text_aim: float | None = None,
    ) -> None:
        heard, text = (
            share(chosen, lambda j: verdict(j.turn, j.heard)),
            share(chosen, lambda j: verdict(j.turn, j.transcript)),
        )
        more = None if aim is None else True
        rows.append(Row(f"{measure}_heard", f"{label}, as heard", heard, "%", aim, more, f"{len(chosen)} answers"))
        more = None if text_aim is None else True
        rows.append(
            Row(f"{measure}_text", f"{label}, in the transcript", text, "%", text_aim, more, f"{len(chosen)} answers")
        )

    def of(kind: str, condition: str) -> list[Judged]:
        return [j for j in judged if j.kind == kind and j.condition == condition and j.last]

    for condition in CONDITIONS:
        aim, text_aim = (85, 95) if condition == CLEAN else (75, None)
        judged_as(
            f"right_{condition}",
            f"answer right, {LABELS[condition]}",
            of("single", condition),
            aim,
            words.right,
            text_aim,
        )
    for condition in CONDITIONS:
        spoken = [j for j in judged if j.condition == condition and j.kind != PEOPLE]
        taught = (
            f"; what the codec is taught on a processor: {voice['word_errors']['locked']} %"
            if voice and "word_errors" in voice
            else ""
        )
        total = sum((words.errors(j.transcript, j.heard) for j in spoken), words.Errors(0, 0))
        rows.append(
            Row(
                f"word_errors_{condition}",
                f"word error rate of the sound against its text, {LABELS[condition]}",
                100 * total.rate,
                "%",
                12 if condition == CLEAN else None,
                False,
                f"{total.words} words" + taught,
            )
        )
    judged_as("follow_up", "follow-up right", of("follow-up", CLEAN), 75, words.right)
    judged_as("memory", "remembered within the session", of("memory", CLEAN), 75, words.right)
    judged_as("unknown", 'outside the domain, met with "I don\'t know"', of("unknown", CLEAN), 90, declined)
    judged_as(
        PEOPLE, 'people, who ask nothing of the domain, met with "I don\'t know"', of(PEOPLE, CLEAN), 80, declined
    )
    return rows


def sound_rows(sounds: Sequence[np.ndarray], frame: int, voice: dict | None) -> list[Row]:
    """Rows of the answers' sound. `voice` is `held-out/voice.json`."""
    sounds = [s for s in sounds if len(s) > 2 * frame]
    if not sounds:
        return []
    found = sound.measures(sounds, frame)
    rows = []
    if voice is None:
        rows.append(
            Row("boundaries", "energy above 6 kHz at frame boundaries, against elsewhere", found["boundaries"], "")
        )
        return rows
    taught, natural = voice["locked"], voice["natural"]
    rows.append(
        Row(
            "boundaries",
            "energy above 6 kHz at frame boundaries, against elsewhere",
            found["boundaries"],
            "",
            note=f"the voice itself: {natural['boundaries']:.2f}; as the codec is taught on a processor: "
            f"{taught['boundaries']:.2f}",
        )
    )
    rows.append(
        Row(
            "level",
            "level against the voice",
            found["level"] - natural["level"],
            "dB",
            note=f"{found['level']:.1f} dBFS; against what the codec is taught on a processor: "
            f"{found['level'] - taught['level']:+.1f} dB",
        )
    )
    rows.append(
        Row(
            "spectral_distance",
            "log-spectral distance to the voice",
            sound.distance(found["spectrum"], natural["spectrum"]),
            "dB",
            note="of average spectra; to what the codec is taught on a processor: "
            f"{sound.distance(found['spectrum'], taught['spectrum']):.1f} dB",
        )
    )
    return rows


def opinion_row(vote: float, voice: dict | None) -> Row:
    """The row of the listeners' predicted opinion. `voice` is `held-out/voice.json`."""
    known = voice.get("opinion", {}) if voice else {}
    note = "DNSMOS, 1 to 5"
    if known:
        note += f"; the voice itself: {known['natural']}; as the codec is taught on a processor: {known['locked']}"
    return Row("opinion", "predicted mean opinion of the sound", vote, "", note=note)


def speed_row(processor_seconds: float, seconds: float) -> Row:
    """The whole path, websocket to websocket, as processor time: what one core would need."""
    value = processor_seconds / seconds if seconds else float("nan")
    note = f"processor time of the gateway for {seconds:.0f} s of answers, one session at a time"
    return Row("rtf", "RTF of the whole path on one core", value, "", 0.05, False, note)


def apart(judged: Sequence[Judged], name: str, of: Callable[[Judged], str]) -> str:
    """Clean single turns, by topic or by voice: for whoever trains, not for the card."""
    lines = [f"| {name} | answers | as heard | in the transcript |", "|---|---|---|---|"]
    clean = [j for j in judged if j.condition == CLEAN and j.kind == "single"]
    for group in sorted({of(j) for j in clean}):
        chosen = [j for j in clean if of(j) == group]
        heard, text = share(chosen, lambda j: j.right_heard), share(chosen, lambda j: j.right_text)
        lines.append(f"| {group} | {len(chosen)} | {heard:.0f} % | {text:.0f} % |")
    return aligned("\n".join(lines))


def markdown(rows: Sequence[Row]) -> str:
    """The table as the card holds it."""
    lines = ["| measure | value | aim | of |", "|---|---|---|---|"]
    lines += [f"| {row.label} | {row.written(row.value)} | {row.aimed} | {row.note} |" for row in rows]
    return "\n".join(lines)


def aligned(table: str) -> str:
    """A markdown table with columns of one width, for a terminal."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    widths = [
        max(len(row[column]) for row in cells if not row[column].startswith("---")) for column in range(len(cells[0]))
    ]
    lines = []
    for row in cells:
        if row[0].startswith("---"):
            lines.append("  ".join("-" * width for width in widths))
        else:
            lines.append("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip())
    return "\n".join(lines)


def report(rows: Sequence[Row], path: Path) -> None:
    """Writes `path` as every benchmark does: here the peer is what is aimed at."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = [
        {
            "measure": row.measure,
            "ours": None if np.isnan(row.value) else round(row.value, 4),
            "peer": row.aim,
            "ratio": None if row.ratio is None else round(row.ratio, 4),
            "unit": row.unit,
            "note": "; ".join(filter(None, (row.label, row.note, "peer: the aim" if row.aim is not None else ""))),
        }
        for row in rows
    ]
    whole = {"name": "model", "date": today(), "machine": machine(), "rows": written}
    path.write_text(json.dumps(whole, indent=2) + "\n")


def card(text: str, table: str, marks: tuple[str, str] = (BEGIN, END)) -> str:
    """The card with the table between its two marks replaced. Fails when they are not there."""
    begin, end = marks
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise SystemExit(f"the model card must hold the lines {begin} and {end} once: between them goes the table")
    return pattern.sub(lambda _: f"{begin}\n{table}\n{end}", text)


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def machine() -> str:
    """Cores and processor."""
    name = "unknown processor"
    info = Path("/proc/cpuinfo")
    if info.exists() and (found := re.search(r"model name\s*: (.*)", info.read_text())):
        name = found[1]
    return f"{os.cpu_count()} cores, {name}"
