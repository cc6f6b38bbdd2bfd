"""Chooses the silences that end a turn, by speakers that training never hears.

The gateway asks the network as a pause goes on. An answer sets the silence that ends the turn: a table has the least
probability of each. Here every end and every pause of the choosing speakers is asked about as the gateway does it, and
tables are tried on the answers. The table of an eagerness has the shortest mean delay of those with few false ends.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from .data import RATE, room_tone, sources
from .features import SAMPLES, features
from .train import load

# The gateway's (gateway/media/src/endpointing.rs): its voice detector notices an end so much later, asks first after
# so much silence, and again each time after so much.
DETECTOR_MS = 90
FIRST_MS = 32
NEXT_MS = 80
ANSWER_MS = 5
FRAME_MS = 16
ASKED_MS = tuple(range(FIRST_MS, 800, NEXT_MS))
PROMPTS = 300  # the most that are asked about, spread over all
INSIDE = ("clause", "hesitation", "list", "number", "spelled", "short")
LEAST = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99)


@dataclass(frozen=True)
class Wanted:
    """Silences of a table, the sure one first, and its greatest share of false ends in pauses of `pause_ms`."""

    silences_ms: tuple[int, ...]
    false_ends: float
    pause_ms: int


TABLES = {
    "high": Wanted((0, 80, 160, 320, 480, 640), 0.15, 400),
    "medium": Wanted((0, 160, 320, 480, 720, 1_200), 0.15, 800),
    "low": Wanted((160, 320, 480, 800, 1_200, 1_600), 0.08, 800),
}


def answers(work: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities `[places, questions]`, the kind of each place, true for a person's."""
    kept = work / "answers.npz"
    if kept.exists() and kept.stat().st_mtime > (work / "state.pt").stat().st_mtime:
        file = np.load(kept)
        return file["p"], file["kind"], file["person"]
    net, p, kinds, person = load(work), [], [], []
    every = sources(work, choosing=True)
    people = [source for source in every if source.is_person()]
    asked = [source for source in every if not source.is_person()] + people[:: math.ceil(len(people) / PROMPTS)]
    for source in asked:
        sound = source.sound.astype(np.float32) / 32768.0
        room = room_tone(sound, (ASKED_MS[-1] + DETECTOR_MS) * RATE // 1000)
        for at, kind in source.places:
            if kind == "splice":
                continue
            waited = [(DETECTOR_MS + ms) * RATE // 1000 for ms in ASKED_MS]
            turns = [np.concatenate([sound[max(0, at - SAMPLES) : at], room[:silence]]) for silence in waited]
            with torch.no_grad():
                p.append(net(features(turns)).sigmoid().numpy())
            kinds.append(kind)
            person.append(source.is_person())
    found = np.stack(p), np.array(kinds), np.array(person)
    np.savez(kept, p=found[0], kind=found[1], person=found[2])
    return found


def delays(p: np.ndarray, silences_ms: tuple[int, ...], least: tuple[float, ...]) -> np.ndarray:
    """The delay of each place's end in ms, by a table: probabilities from `least[i]` on wait `silences_ms[i]`, others
    wait the last silence. The last answer stands.
    """
    ends = np.zeros(len(p))
    bounds = np.array(sorted(least))
    waits = np.array(silences_ms)[len(least) - np.searchsorted(bounds, p, side="right")]
    open_ = np.ones(len(p), bool)
    for question, asked in enumerate(ASKED_MS):
        # Decided at the answer, or at a frame before the next one.
        answered = asked + ANSWER_MS
        due = np.maximum(answered, waits[:, question])
        is_last = question == len(ASKED_MS) - 1
        decided = open_ & (is_last | (due < asked + NEXT_MS + ANSWER_MS))
        ends[decided] = DETECTOR_MS + np.ceil(due[decided] / FRAME_MS) * FRAME_MS
        open_ &= ~decided
    return ends


def choose(work: Path) -> None:
    """Prints how well ends are told from pauses, and the table of each eagerness."""
    p, kind, person = answers(work)
    is_end, is_inside = kind == "end", np.isin(kind, INSIDE)
    counted = {name: int((kind == name).sum()) for name in sorted(set(kind))}
    print(f"places: {json.dumps(counted)}; of people: {int(person.sum())}")
    for question in (0, 2, 5):
        for name, whose in (("Kokoro", ~person), ("people", person)):
            ends, pauses = p[is_end & whose, question], p[is_inside & whose, question]
            area = (ends[:, None] > pauses[None]).mean()
            print(f"after {ASKED_MS[question]} ms, {name}: area under the curve {area:.3f}")
    for name, wanted in TABLES.items():
        tried = []
        for least in itertools.combinations(reversed(LEAST), len(wanted.silences_ms) - 1):
            found = delays(p, wanted.silences_ms, least)
            false_ends = float((found[is_inside] <= wanted.pause_ms).mean())
            waited = found[is_end]
            # The fewest false ends where no table keeps the limit.
            excess = max(0.0, false_ends - wanted.false_ends)
            p50, p95 = (float(ms) for ms in np.percentile(waited, (50, 95)))
            tried.append((excess, float(waited.mean()), least, false_ends, p50, p95))
        _, _, least, false_ends, p50, p95 = min(tried)
        steps = ", ".join(f"({low}, {ms})" for low, ms in zip((*least, 0.0), wanted.silences_ms, strict=True))
        print(
            f"{name}: [{steps}];"
            f" {100 * false_ends:.1f} false ends of 100 in {wanted.pause_ms} ms, "
            f"delay {p50:.0f} / {p95:.0f} ms"
        )
