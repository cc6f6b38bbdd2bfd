"""The sizes of a run: a smoke test's seconds, a processor's hours, a GPU's in earnest."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """The sizes of a run. Training is limited in steps, not minutes, so that it ends with the same weights on any
    machine.
    """

    name: str
    processes: int  # that make speech side by side
    threads: int  # of the numeric libraries, on a processor
    seed: int  # of all training
    answers: int  # sentences in the teacher's voice
    planned: int  # sentences of which only the codes are made
    questions: int  # turns spoken by the synthetic askers
    natural: int  # turns spoken by those whose voices are learnt from people
    teacher: str  # "locked" or "natural", see teacher.py
    adversarial: bool
    wave_weight: float  # of the complex spectra's distance
    compile: bool
    codec_steps: int
    codec_batch: int
    codec_rate: float
    tune_steps: int
    talker_steps: int
    talker_batch: int
    talker_rate: float
    thinker_steps: int
    thinker_batch: int
    thinker_rate: float


SMOKE = Scale(
    name="smoke",
    processes=1,
    threads=1,
    seed=1,
    answers=4,
    planned=6,
    questions=8,
    natural=2,
    teacher="locked",
    adversarial=True,
    wave_weight=1,
    compile=False,
    codec_steps=4,
    codec_batch=2,
    codec_rate=1e-3,
    tune_steps=2,
    talker_steps=3,
    talker_batch=2,
    talker_rate=1e-3,
    thinker_steps=3,
    thinker_batch=2,
    thinker_rate=1e-3,
)
CPU = Scale(
    name="cpu",
    processes=2,
    threads=1,
    seed=1,
    answers=800,
    planned=12_000,
    questions=28_000,
    natural=3_000,
    teacher="locked",
    adversarial=False,
    wave_weight=1,
    compile=True,
    codec_steps=20_000,
    codec_batch=5,
    codec_rate=1e-3,
    tune_steps=10_000,
    talker_steps=9_000,
    talker_batch=32,
    talker_rate=1e-3,
    thinker_steps=16_000,
    thinker_batch=18,
    thinker_rate=6e-4,
)
# About twenty-five minutes on one H100 with 16 cores: codec and thinker side by side, then the talker.
GPU = Scale(
    name="gpu",
    processes=14,
    threads=4,
    seed=1,
    answers=8_000,
    planned=12_000,
    questions=34_000,
    natural=12_000,
    teacher="natural",
    adversarial=True,
    wave_weight=0.1,
    compile=True,
    codec_steps=40_000,
    codec_batch=32,
    codec_rate=5e-4,
    tune_steps=10_000,
    talker_steps=20_000,
    talker_batch=128,
    talker_rate=1e-3,
    thinker_steps=30_000,
    thinker_batch=128,
    thinker_rate=6e-4,
)
SCALES = {scale.name: scale for scale in (SMOKE, CPU, GPU)}
