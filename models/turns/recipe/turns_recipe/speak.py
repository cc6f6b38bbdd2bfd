"""Steps that make the turns: spoken by Kokoro, and cut from people's prompts."""

from __future__ import annotations

import json
import random
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from . import people, texts
from .people import RATE


def keep(path: Path, sound: np.ndarray, **meta: object) -> None:
    """Writes a turn as `data.Source` reads it."""
    part = path.with_suffix(".part.npz")
    np.savez(part, sound=np.clip(np.round(sound * 32767), -32768, 32767).astype(np.int16), meta=json.dumps(meta))
    part.rename(path)


def speak(folder: Path, count: int, first: int, step: int) -> None:
    """Speaks every `step`-th random turn of `count`; a turn that exists is kept."""
    from . import spoken

    voices = spoken.training_voices()
    for number in range(first, count, step):
        path = folder / f"{number:05}.npz"
        if path.exists():
            continue
        r = random.Random(number)
        pieces = texts.turn(r)
        voice = r.choice(voices)
        if r.random() < 0.4:
            voice += "+" + r.choice([other for other in voices if other[0] == voice[0]])
        turn = spoken.say(pieces, voice, np.random.default_rng([1, number]), r.uniform(0.85, 1.25), splices=2)
        keep(path, turn.sound, voice=voice, pauses=turn.pauses, voice_end=turn.voice_end)


def kokoro(work: Path, count: int, processes: int) -> None:
    """Speaks turns in several processes."""
    folder = work / "kokoro"
    folder.mkdir(exist_ok=True)
    context = get_context("spawn")
    running = [context.Process(target=speak, args=(folder, count, first, processes)) for first in range(processes)]
    for process in running:
        process.start()
    for process in running:
        process.join()


def prompts(work: Path) -> None:
    """Cuts the prompts of each speaker that training hears."""
    folder = work / "people"
    folder.mkdir(exist_ok=True)
    for package in people.TRAINING:
        for number, path in enumerate(people.paths(package)):
            kept = folder / f"{package}-{number:04}.npz"
            recording = None if kept.exists() else people.recording(path)
            if recording is None:
                continue
            pauses = [
                (end, "short" if begin - end < people.SHORT_PAUSE_MS * RATE // 1000 else "long")
                for (_, end), (begin, _) in zip(recording.voice, recording.voice[1:], strict=False)
            ]
            pauses += [(at, "splice") for at in people.valleys(recording.sound, recording.voice)]
            keep(kept, recording.sound, voice=package, pauses=pauses, voice_end=recording.voice[-1][1])
        print(f"{package}: {len(list(folder.glob(f'{package}-*.npz')))} prompts", flush=True)
