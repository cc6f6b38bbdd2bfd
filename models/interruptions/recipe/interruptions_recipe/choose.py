"""Prints what thresholds make of the choosing speakers, whom training never hears.

The gateway's decision (gateway/media/src/barge_in.rs), frame by frame: once a voice has lasted for `OPENED` frames, it
is announced where two frames in a row are sure of an interruption; at its end, where an interruption is likely; and
after some time where it goes on, unless the network is sure that it is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .features import relative
from .net import KINDS, likelihoods
from .train import load, shards

FRAME_MS = 16
OPENED = 8
ENDED = 9  # silent frames that end a voice


@dataclass(frozen=True)
class Thresholds:
    """Probabilities of an interruption, and times behind the opening in frames."""

    sure: float
    at_end: float
    holding: float
    decided: int
    longest: int


def decided(p: np.ndarray, begin: int, end: int, limits: Thresholds) -> int | None:
    """Frames from the begin of a voice to its announcement; `None` if there is none. `p` is that of an interruption."""
    opened = begin + OPENED
    for at in range(opened, len(p)):
        if at >= end + ENDED:
            return at - begin if p[at] >= limits.at_end else None
        if at < end and min(p[at], p[at - 1]) >= limits.sure:
            return at - begin
        if at >= opened + limits.decided and at < end and (p[at] >= limits.holding or at >= opened + limits.longest):
            return at - begin
    return None


def choose(work: Path) -> None:
    """Prints a table of thresholds."""
    x, y = shards(work / "choosing-examples")
    p = likelihoods(load(work), relative(x.float())).numpy()
    places = [(int(first) - 4, int(last) - 14) for _, first, last, _ in y]
    late = np.array([p[row, min(end + ENDED, p.shape[1] - 1)].argmax() for row, (_, end) in enumerate(places)])
    for index, kind in enumerate(KINDS):
        found = np.bincount(late[y[:, 0] == index], minlength=3)
        print(f"{kind}: at its end taken for {dict(zip(KINDS, found.tolist(), strict=True))}")
    is_short = np.array([end - begin < 35 for begin, end in places])
    for sure in (0.9, 0.95, 0.97, 0.98, 0.99):
        for at_end in (0.5, 0.7):
            for holding in (0.1, 0.3):
                limits = Thresholds(sure, at_end, holding, 22, 50)
                found = [decided(p[row, :, 0], begin, end, limits) for row, (begin, end) in enumerate(places)]
                at = np.array([-1 if one is None else one for one in found])
                rows = []
                for name, chosen in (
                    ("sentences", (y[:, 0].numpy() == 0) & ~is_short),
                    ("commands", (y[:, 0].numpy() == 0) & is_short),
                    ("backchannels", y[:, 0].numpy() == 1),
                    ("neither", y[:, 0].numpy() == 2),
                ):
                    of = at[chosen]
                    p50, p95 = np.percentile(of[of >= 0], (50, 95)) * FRAME_MS if (of >= 0).any() else (0, 0)
                    rows.append(f"{name} {100 * (of >= 0).mean():.0f} % ({p50:.0f}/{p95:.0f} ms)")
                print(f"sure {sure}, at the end {at_end}, holding {holding}: {', '.join(rows)}")
