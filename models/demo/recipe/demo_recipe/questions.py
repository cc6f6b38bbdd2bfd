"""Questions, spoken: the callers' turns of many conversations in many synthetic voices.

A set (`train`, `natural`, `dictated`, `held_out`) is a folder of shards. A shard is two files:

`N.npy`   all its sound, one turn after the other: int16 at 16 kHz, mono
`N.json`  `{"turns": [...], "conversations": [[turn, ...], ...]}`; see `Spoken`

Each turn is stored once; a conversation is a list of turns, spoken by one voice. `train` has espeak-ng's, flite's and
festival's voices, which take milliseconds; `natural` has Kokoro's, which are learnt from people and take half a second.
`dictated` is to be written down, by the voices of `train`. The held-out set has voices and phrasings that training
never hears. A shard that exists is kept, so that a run that was stopped goes on.
"""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import tempfile
import wave
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import combinations
from math import gcd
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from scipy.signal import resample_poly

from . import kokoro
from .domain import Conversation, Turn, conversation, dictation, practice
from .progress import Progress
from .scale import Scale

RATE = 16_000  # samples a second, as the audio tower hears
# Conversations of a shard, by its set: about as many as are spoken in a minute.
SHARD = {"train": 250, "natural": 25, "dictated": 250, "held_out": 250}
HELD_OUT = 150  # conversations at most
SEEDS = {"train": 1, "natural": 3, "dictated": 4, "held_out": 2}
TURNS_PER_CONVERSATION = 1.45  # on average
DICTATED_SHARE = 1 / 8  # so many turns are dictated beside `scale.questions`

# espeak-ng: an accent and a variant of the voice. Effects and voices that a person hardly understands are left out.
ACCENTS = (
    "en-us",
    "en-us",
    "en-gb",
    "en-gb-x-rp",
    "en-us-nyc",
    "en-029",
    "en-gb-x-gbcwmd",
    "en-gb-scotland",
    "en-gb-x-gbclan",
)
VARIANTS = (
    "Alex Alicia Andrea Andy Annie AnxiousAndy Denis Diogo Gene Gene2 Henrique Hugo Jacky Lee Marco Mario Michael Mike "
    "Nguyen "
    "RicishayMax RicishayMax2 RicishayMax3 Storm Tweaky adam anika announcer antonio aunty belinda benjamin boris "
    "caleb david ed "
    "edward edward2 f1 f2 f4 f5 grandma grandpa gustave iven iven3 iven4 john klatt klatt2 klatt3 klatt5 klatt6 m1 m2 "
    "m3 m4 m5 m7 m8 "
    "marcelo max michel miguel norbert pablo paul pedro quincy rob robert sandro shelby steph steph2 steph3 travis "
    "victor zac"
).split()
# flite and festival have few voices: each speaks at any person's pitch. Festival's is put together of recorded
# diphones, as flite's `kal` is.
FLITE = ("awb", "slt")
FLITE_SHARE = 0.15
FESTIVAL = ("ked_diphone",)
FESTIVAL_SHARE = 0.05
LOWEST, HIGHEST = 80, 220  # Hz, of their mean pitch
# Kokoro's voices that speak English, but for those of the judge.
KOKORO = (
    "af_alloy af_aoede af_bella af_heart af_jessica af_nicole af_nova af_river af_sarah af_sky "
    "am_adam am_echo am_eric am_fenrir am_liam am_michael am_puck am_santa bf_alice bf_emma bf_isabella bm_daniel "
    "bm_fable bm_george"
).split()
# Never heard in training, neither the voice nor, for espeak-ng, its variant in another accent.
HELD_OUT_VOICES = (
    "flite rms",
    "flite rms",
    "espeak en-gb-scotland+f3",
    "espeak en-us+m6",
    "espeak en-gb-x-gbclan+klatt4",
    "espeak en-us-nyc+linda",
)
# Nor these, which came to judge later.
HELD_OUT_SINCE = ("kokoro am_onyx", "kokoro af_kore", "kokoro bm_lewis", "kokoro bf_lily", "flite kal")


@dataclass(frozen=True)
class Voice:
    """One caller: a synthesiser's voice with a speed and a pitch that stay for a conversation."""

    name: str
    speed: float  # 1 is the voice's own
    pitch: int  # 0 to 99; of flite's, those that training hears

    @staticmethod
    def random(r: random.Random, among: tuple[str, ...] = ()) -> Voice:
        """Any of espeak-ng's, flite's and festival's that training hears, or one of some voices."""
        if among:
            name = r.choice(among)
        elif (share := r.random()) < FLITE_SHARE:
            name = "flite " + r.choice(FLITE)
        elif share < FLITE_SHARE + FESTIVAL_SHARE:
            name = "festival " + r.choice(FESTIVAL)
        else:
            name = f"espeak {r.choice(ACCENTS)}+{r.choice(VARIANTS)}"
        return Voice(name, r.uniform(0.75, 1.2), r.randint(20, 80))

    def say(self, text: str) -> np.ndarray:
        """int16 at 16 kHz, without the silence around; loudest sample about 20,000."""
        samples, rate = self._speak(text)
        common = gcd(RATE, rate)
        sound = resample_poly(samples.astype(np.float32), RATE // common, rate // common)
        loudest = np.abs(sound).max(initial=0.0)
        if loudest < 1:
            raise RuntimeError(f"{self.name} said nothing to {text!r}; is its synthesiser installed?")
        return trim(sound * (20_000 / loudest)).astype(np.int16)

    def _speak(self, text: str) -> tuple[np.ndarray, int]:
        """Samples and rate, as the synthesiser gives them."""
        family, voice = self.name.split()
        if family == "kokoro":
            # Played at another rate it is another person, who speaks as fast as asked.
            pitch = 0.9 + 0.2 * (self.pitch - 20) / 60
            spoken = np.clip(kokoro.speak(text, voice, self.speed / pitch) * 32767, -32768, 32767)
            return spoken.astype(np.int16), round(kokoro.RATE * pitch / 100) * 100
        if family == "festival":
            return festival(text, voice, self.speed, self._hertz())
        if family == "flite":
            tone = ["--setf", f"int_f0_target_mean={self._hertz()}"] if voice in FLITE else []
            stretch = ["--setf", f"duration_stretch={1 / self.speed:.2f}"]
            command = ["flite", "-voice", voice, *stretch, *tone, "-t", text, "-o", "/dev/stdout"]
        else:
            command = [
                "espeak-ng",
                "-v",
                voice,
                "-s",
                str(round(175 * self.speed)),
                "-p",
                str(self.pitch),
                "--stdout",
                text,
            ]
        return read_wave(subprocess.run(command, capture_output=True, check=True).stdout)

    def _hertz(self) -> int:
        """The mean pitch of synthesisers that take one."""
        return round(LOWEST + (HIGHEST - LOWEST) * (self.pitch - 20) / 60)


def festival(text: str, voice: str, speed: float, hertz: int) -> tuple[np.ndarray, int]:
    """Samples and rate, of a voice of diphones."""
    said = text.replace('"', "")  # which would end Scheme's string
    melody = f"(target_f0_mean {hertz}) (target_f0_std {hertz * 0.15:.0f}) (model_f0_mean 170) (model_f0_std 34)"
    settings = f"(voice_{voice}) (Parameter.set 'Duration_Stretch {1 / speed:.2f}) (set! int_lr_params '({melody}))"
    home = os.environ.get("FESTIVAL")  # where it was not installed
    with tempfile.TemporaryDirectory() as folder:
        wave_path = Path(folder) / "said.wav"
        speak = f'(begin {settings} (utt.save.wave (utt.synth (Utterance Text "{said}")) "{wave_path}" \'riff))'
        subprocess.run(
            ["festival", *(["--libdir", home] if home else []), "--batch", speak], capture_output=True, check=True
        )
        return read_wave(wave_path.read_bytes())


def read_wave(data: bytes) -> tuple[np.ndarray, int]:
    """Samples and rate of a 16-bit mono WAV whose header, written to a pipe, may not know its length."""
    with wave.open(io.BytesIO(data)) as file:
        rate = file.getframerate()
    body = data.index(b"data") + 8
    return np.frombuffer(data[body : body + (len(data) - body) // 2 * 2], np.int16), rate


def trim(sound: np.ndarray, threshold: float = 200.0, margin: int = RATE // 20) -> np.ndarray:
    """Without what is below the threshold at both ends, but for 50 ms."""
    loud = np.flatnonzero(np.abs(sound) > threshold)
    return sound[max(0, loud[0] - margin) : loud[-1] + margin] if len(loud) else sound


# What is said in a set.
MADE: dict[str, Callable[[random.Random], Conversation]] = {
    "train": practice,
    "natural": practice,
    "dictated": lambda r: Conversation((dictation(r),)),
    "held_out": lambda r: conversation(r, held_out=True),
}
# Whom a set's conversations are by; nobody named is anybody whom training hears.
AMONG = {
    "train": (),
    "dictated": (),
    # Each by itself and between any two.
    "natural": tuple(f"kokoro {'+'.join(names)}" for n in (1, 2) for names in combinations(KOKORO, n)),
    "held_out": HELD_OUT_VOICES + HELD_OUT_SINCE,
}


def shard(path: Path, first: int, count: int) -> int:
    """Speaks conversations `first` to `first + count` of the set that the folder is named after. Returns how many turns
    that is.
    """
    name = path.parent.name
    seed = SEEDS[name]
    r = random.Random(seed * 1_000_003 + first)
    talks = [MADE[name](r) for _ in range(count)]
    voices = [Voice.random(random.Random(f"{seed} {first + index} voice"), AMONG[name]) for index in range(count)]
    return store(path, [(voice, talk.turns) for voice, talk in zip(voices, talks, strict=True)])


def store(path: Path, talks: list[tuple[Voice, tuple[Turn, ...]]]) -> int:
    """Speaks conversations and writes them as a shard. Returns how many turns they have."""
    sounds: list[np.ndarray] = []
    turns: list[dict] = []
    lists: list[list[int]] = []
    for voice, asked in talks:
        lists.append([len(turns) + k for k in range(len(asked))])
        for turn in asked:
            sound = voice.say(turn.question)
            start = turns[-1]["end"] if turns else 0
            turns.append(dict(start=start, end=start + len(sound), voice=voice.name, **vars(turn)))
            sounds.append(sound)
    np.save(path.with_suffix(".npy"), np.concatenate(sounds))
    # Last, and in one step: a shard is there when its list is.
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"turns": turns, "conversations": lists}))
    part.replace(path.with_suffix(".json"))
    return len(turns)


def make(work: Path, scale: Scale) -> None:
    """Speaks all sets into `work/questions/`: about `scale.questions` and `scale.natural` turns to learn from, and some
    to judge by.
    """
    wanted, natural = (max(1, round(turns / TURNS_PER_CONVERSATION)) for turns in (scale.questions, scale.natural))
    jobs: list[tuple[float, Path, int, int]] = []
    dictated = max(1, round(scale.questions * DICTATED_SHARE))
    held_out = min(HELD_OUT, max(2, wanted // 20))
    for name, total in (("held_out", held_out), ("train", wanted), ("natural", natural), ("dictated", dictated)):
        folder = work / "questions" / name
        folder.mkdir(parents=True, exist_ok=True)
        for first in range(0, total, SHARD[name]):
            path = folder / f"{first // SHARD[name]:04}"
            if not path.with_suffix(".json").exists():
                jobs.append((first / total, path, first, min(SHARD[name], total - first)))
    # Sets side by side: training may begin before all is spoken.
    jobs.sort()
    progress = Progress("questions", len(jobs))
    with ProcessPoolExecutor(scale.processes, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(shard, path, first, count) for _, path, first, count in jobs]):
            progress.step(note=f"{future.result()} turns in the last")


@dataclass(frozen=True)
class Spoken:
    """A turn as it is stored."""

    sound: np.ndarray  # int16 at 16 kHz
    voice: str
    turn: Turn


def load(folder: Path) -> list[list[Spoken]]:
    """The conversations of a set. Sound stays on disk until it is read."""
    loaded = []
    for listing in sorted(folder.glob("*.json")):
        meta, sound = json.loads(listing.read_text()), np.load(listing.with_suffix(".npy"), mmap_mode="r")
        turns = [
            Spoken(
                sound[t["start"] : t["end"]], t["voice"], Turn(t["topic"], t["question"], t["answer"], tuple(t["key"]))
            )
            for t in meta["turns"]
        ]
        loaded += [[turns[k] for k in numbers] for numbers in meta["conversations"]]
    if not loaded:
        raise FileNotFoundError(f"no spoken questions in {folder}: run the step `questions` first")
    return loaded
