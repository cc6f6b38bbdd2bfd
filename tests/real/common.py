"""Shared paths, rows of reports, and the rules for right words of `make test-real` and `make bench-real`."""

import datetime
import json
import os
import platform
import re
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "models/demo/recipe"))

from demo_recipe.evaluate.words import Errors, errors, matches, words  # noqa: E402 (the path stands above)

REPORTS = ROOT / "target/report"
WORK = ROOT / "target/real"
WIRE_RATE = 24_000
MODEL_RATE = 16_000


def questions() -> dict:
    """The frozen lists."""
    return json.loads((ROOT / "tests/real/questions.json").read_text())


def is_right(key: list[list[str]], text: str) -> bool:
    """True if a text has one of each group of key words: whole words, in order, numbers as digits or words."""

    def has(alternative: str) -> bool:
        due = words(alternative)
        given = words(text, due)
        return any(matches(due, given[at : at + len(due)]) for at in range(len(given) - len(due) + 1))

    return all(any(map(has, group)) for group in key)


def word_errors(pairs: list[tuple[str, str]]) -> Errors:
    """Errors of all pairs of a text and what was heard."""
    return sum((errors(text, heard) for text, heard in pairs), Errors(0, 0))


@dataclass
class Outcome:
    """Rows and failures of one run."""

    name: str
    rows: list[dict] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def row(
        self, measure: str, ours: float, peer: float | None = None, unit: str = "", note: str = "", **how: bool
    ) -> None:
        """Adds a measure; with `more=True` more is better."""
        ratio = None
        if peer is not None and ours > 0 and peer > 0:
            ratio = ours / peer if how.get("more") else peer / ours
        self.rows.append({"measure": measure, "ours": ours, "peer": peer, "ratio": ratio, "unit": unit, "note": note})
        beside = "" if peer is None else f"{peer:>10.3f}"
        times = "" if ratio is None else f"{ratio:>6.2f} x"
        print(f"  {measure:<44} {ours:>10.3f} {beside:>10} {times:>8} {unit:<9} {note}", flush=True)

    def check(self, name: str, holds: bool, why: str = "") -> None:
        """Adds a check, which is a row of 1 or 0."""
        self.row(name, float(holds), None, "", why if not holds else "")
        if not holds:
            self.failed.append(f"{name}: {why}")

    def write(self) -> int:
        """Writes target/report/NAME.json and prints what failed; returns the exit status."""
        made = {"name": self.name, "date": str(datetime.datetime.now(datetime.UTC).date()), "machine": machine()}
        path = REPORTS / f"{self.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(made | {"rows": self.rows}, indent=2) + "\n")
        print(f"{path.relative_to(ROOT)}: {len(self.rows)} rows, {len(self.failed)} failed", flush=True)
        for failure in self.failed:
            print(f"  failed: {failure}", flush=True)
        return 1 if self.failed else 0


def machine() -> str:
    """Number of cores and processor model, as the crate repartee-report says them."""
    cpu = Path("/proc/cpuinfo")
    named = re.search(r"^model name\s*: (.*)$", cpu.read_text() if cpu.exists() else "", re.MULTILINE)
    return f"{len(os.sched_getaffinity(0))} cores, {named[1] if named else platform.machine()}"


def spread(numbers: list[float]) -> str:
    """Range and count of repeated measurements."""
    return f"{min(numbers):.3g} to {max(numbers):.3g} in {len(numbers)} runs"


def middle(numbers: list[float]) -> float:
    """Median; NaN of nothing."""
    return statistics.median(numbers) if numbers else float("nan")


def pcm(sound: np.ndarray) -> bytes:
    """Samples in -1..1 as 16-bit PCM."""
    return np.clip(np.round(sound * 32768.0), -32768, 32767).astype("<i2").tobytes()


def samples(sound: bytes) -> np.ndarray:
    """16-bit PCM as samples in -1..1."""
    return np.frombuffer(sound, "<i2").astype(np.float32) / 32768.0
