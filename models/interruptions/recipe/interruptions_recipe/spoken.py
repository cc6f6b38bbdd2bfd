"""Starts for training and for the choice of thresholds: Kokoro speaks words and sentences, people laugh and shout."""

from __future__ import annotations

import json
import random
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from demo_recipe import phonemes
from turns_recipe import texts

from . import people, voices, words

RATE = voices.RATE
LONGEST = 2 * RATE
# Languages that training hears, and their shares; Portuguese and Hindi are judged alone.
LANGUAGES = {"en": 8, "es": 2, "fr": 2, "it": 2, "ja": 2, "zh": 2}
OPENINGS = "Yeah|Okay|Right|Yes|No|Wait|Well|So|Oh|Sure|Mm|Uh|Hold on|Sorry|Stop|Actually".split("|")


def training_voices() -> list[str]:
    """Voices that neither judge nor choose."""
    apart = {name for names in words.JUDGED.values() for name in names} | set(words.CHOOSING)
    return [voice for voice in voices.every() if voice not in apart]


def drawn(r: random.Random) -> tuple[str, str]:
    """(kind, symbols) of a random start."""
    kind = r.choices(("backchannel", "command", "interruption"), (0.5, 0.38, 0.12))[0]
    if kind == "interruption":
        text = " ".join(piece.text for piece in texts.plain(r))
        if r.random() < 0.8:
            text = f"{r.choice(OPENINGS)}{r.choice((',', ',', ' '))} {text[0].lower()}{text[1:]}"
        return kind, words.symbols(phonemes.of(text, r.choice((phonemes.AMERICAN, phonemes.BRITISH))))
    language = r.choices(list(LANGUAGES), list(LANGUAGES.values()))[0]
    table = words.BACKCHANNELS if kind == "backchannel" else words.COMMANDS
    symbols = r.choice(words.listed(table, language))
    if kind == "backchannel" and r.random() < 0.1:
        symbols += f"{r.choice((', ', ' '))}{r.choice(words.listed(table, language))}"
    return kind, symbols + r.choice(".!,?" if kind == "backchannel" else "!!.")


def speak(folder: Path, names: list[str], count: int, first: int, step: int) -> None:
    """Speaks every `step`-th random start of `count`; a start that exists is kept."""
    for number in range(first, count, step):
        path = folder / f"{number:05}.npz"
        if path.exists():
            continue
        r = random.Random(f"{folder.name} {number}")
        kind, symbols = drawn(r)
        voice = r.choice(names)
        if r.random() < 0.4:
            voice += "+" + r.choice([other for other in names if other[1] == voice[1]])
        sound = voices.say(symbols, voice, r.uniform(0.85, 1.7 if kind != "interruption" else 1.25))[:LONGEST]
        keep(path, sound, voice=voice, kind=kind, symbols=symbols)


def keep(path: Path, sound: np.ndarray, **meta: str) -> None:
    """Writes a start as `data.read` reads it."""
    part = path.with_suffix(".part.npz")
    np.savez(part, sound=np.round(sound * 32767).astype(np.int16), meta=json.dumps(meta))
    part.rename(path)


def kokoro(work: Path, name: str, names: list[str], count: int, processes: int) -> None:
    """Speaks starts into the folder `name` in several processes."""
    folder = work / name
    folder.mkdir(exist_ok=True)
    context = get_context("spawn")
    running = [
        context.Process(target=speak, args=(folder, names, count, first, processes)) for first in range(processes)
    ]
    for process in running:
        process.start()
    for process in running:
        process.join()


def human(work: Path) -> None:
    """Reads people's sounds into the folders of the starts."""
    from turns_recipe.people import read

    for name, listed in (("train", people.training()), ("choosing", people.paths(people.CHOOSING))):
        (work / name).mkdir(exist_ok=True)
        for path, kind in listed:
            sound = voices.trimmed(read(path))[:LONGEST]
            keep(work / name / f"people-{path.parent.name}-{path.stem}.npz", sound, voice=path.parent.name, kind=kind)
        print(f"{name}: {len(listed)} sounds of people", flush=True)
