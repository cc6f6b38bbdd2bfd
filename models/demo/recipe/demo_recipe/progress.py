"""Says how far a step is, at most every few seconds."""

from __future__ import annotations

import time


class Progress:
    """A count of `total` with the time that is left."""

    EVERY = 5.0  # seconds

    def __init__(self, name: str, total: int, done: int = 0) -> None:
        self._name, self._total, self._first, self._done = name, total, done, done
        self._start = time.monotonic()
        self._said = 0.0
        if done:
            print(f"{name}: {done} of {total} are there already", flush=True)

    def step(self, count: int = 1, note: str = "") -> None:
        """Another `count` are done."""
        self._done += count
        now = time.monotonic()
        if now - self._said < self.EVERY and self._done < self._total:
            return
        self._said = now
        taken = now - self._start
        left = taken / max(1, self._done - self._first) * (self._total - self._done)
        print(
            f"{self._name}: {self._done} of {self._total}, {left:.0f} s left{'; ' + note if note else ''}", flush=True
        )
