"""Sounds of `make test-real`: the frozen questions in their voices, and recordings of people."""

import hashlib
import wave
from pathlib import Path

import numpy as np
from scipy.signal import resample_poly

from common import MODEL_RATE, ROOT, WIRE_RATE, WORK, pcm
from demo_recipe import kokoro
from demo_recipe.evaluate import conditions

PEOPLE = ROOT / "target/tools/people"
DATA = PEOPLE / "usr/share/pocketsphinx/test/data"
PEAK = 0.6
# Words of the recordings that have no transcript beside them.
SAID = {
    "goforward.raw": "go forward ten meters",
    "something.raw": "go somewhere and do something",
    "dhd.2934z.raw": "two nine three four zero",
}


def framed(sound: np.ndarray, rate: int) -> np.ndarray:
    """A turn as loud as others, with silence around."""
    loud = np.flatnonzero(np.abs(sound) > np.abs(sound).max() / 50)
    spoken = sound[loud[0] : loud[-1] + 1] * (PEAK / np.abs(sound).max())
    return np.pad(spoken.astype(np.float32), (int(0.25 * rate), int(0.45 * rate)))


def question(text: str, voice: str) -> bytes:
    """A question as a caller sends it, 16-bit PCM at 24 kHz; kept between runs."""
    kept = WORK / "questions" / f"{hashlib.sha256(f'{voice} {text}'.encode()).hexdigest()[:16]}.pcm"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(pcm(framed(kokoro.speak(text, voice, 1.0), kokoro.RATE)))
    return kept.read_bytes()


def people() -> list[tuple[str, bytes]]:
    """Recordings of people, each with its words."""
    lines = [*(DATA / "librivox/transcription").read_text().splitlines()]
    lines += (DATA / "cards/cards.transcription").read_text().splitlines()
    said = dict(SAID)
    for line in lines:
        text, _, name = line.strip().rpartition(" ")
        said[f"{name.strip('()')}.wav"] = text.removeprefix("<s>").removesuffix("</s>").strip()
    # The reader says "more amiable".
    said = {name: text.replace("more a amiable", "more amiable") for name, text in said.items()}
    extra = [DATA / "tidigits/dhd.2934z.raw"]
    found = [(recording.name, recording.pcm) for recording in conditions.people(PEOPLE)]
    found += [
        (path.name, conditions.on_the_wire(conditions.framed(conditions.loud(conditions.samples(path)))))
        for path in extra
    ]
    return [(said[name], sound) for name, sound in found if name in said]


def at_model_rate(sound: np.ndarray) -> np.ndarray:
    """Sound of the wire at 16 kHz."""
    return resample_poly(sound, MODEL_RATE // 8000, WIRE_RATE // 8000).astype(np.float32)


def write_wave(path: Path, sound: bytes, rate: int = WIRE_RATE) -> Path:
    """Writes a wav file of 16-bit PCM."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes(sound)
    return path
