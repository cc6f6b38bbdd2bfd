"""Turns of people: voice prompts of telephone systems, recorded by speakers for Debian's packages of Asterisk.

`scripts/setup.sh turns` unpacks them under target/tools/turns. Training hears the speakers of `TRAINING`; Allison Smith
is judged (`tests/turns`), so her Spanish prompts, the package asterisk-core-sounds-es-g722, do not train either. A
prompt of a second and a half is a whole sentence or several. No text tells which pauses stand inside a sentence; the
short ones mostly do.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

RATE = 16_000
STEP = RATE // 100
HOME = Path(__file__).parents[4] / "target/tools/turns"
JUDGED = "asterisk-core-sounds-en-g722"
TRAINING = (
    "asterisk-core-sounds-fr-g722",
    "asterisk-core-sounds-it-g722",
    "asterisk-core-sounds-ru-g722",
    "asterisk-prompt-es-co",
    "asterisk-prompt-fr-armelle",
    "asterisk-prompt-it-menardi-wav",
)
# Folders of single digits and letters, which are parts of sentences, and of noise.
FRAGMENTS = {"digits", "letters", "phonetic", "silence"}
SHORTEST_S = 1.5  # of a prompt's voice
SHORT_PAUSE_MS = 220  # mostly inside a sentence


@dataclass
class Recording:
    """A recording, f32 at `RATE`, with the stretches of its voice in samples."""

    path: Path
    sound: np.ndarray
    voice: list[tuple[int, int]]


def read(path: Path) -> np.ndarray:
    """Reads a sound file, f32 at `RATE`, mono."""
    import av

    headerless = path.suffix[1:] if path.suffix in (".g722", ".gsm") else None
    resampler = av.AudioResampler(format="flt", layout="mono", rate=RATE)
    parts = []
    with av.open(str(path), format=headerless) as container:
        for frame in container.decode(audio=0):
            parts += [part.to_ndarray().reshape(-1) for part in resampler.resample(frame)]
    parts += [part.to_ndarray().reshape(-1) for part in resampler.resample(None)]
    return np.concatenate(parts).astype(np.float32) if parts else np.zeros(0, np.float32)


def levels(sound: np.ndarray) -> np.ndarray:
    """RMS of each 10 ms."""
    return np.sqrt(np.square(sound[: len(sound) // STEP * STEP].reshape(-1, STEP)).mean(1))


def voice(sound: np.ndarray, pause_ms: int = 150) -> list[tuple[int, int]]:
    """Stretches of at least 80 ms that reach a twentieth of the loud parts, with pauses of `pause_ms` between them."""
    level = levels(sound)
    loud = np.sort(level)[-max(1, len(level) // 20) :].mean()
    stretches: list[list[int]] = []
    for at in np.flatnonzero(level > loud / 20):
        if stretches and at - stretches[-1][1] < pause_ms // 10:
            stretches[-1][1] = int(at) + 1
        else:
            stretches.append([int(at), int(at) + 1])
    return [(begin * STEP, end * STEP) for begin, end in stretches if end - begin >= 8]


def paths(package: str) -> list[Path]:
    """The prompts of a speaker, by name."""
    every = sorted((HOME / package).rglob("*"))
    return [path for path in every if path.suffix in (".g722", ".gsm", ".wav") and not FRAGMENTS & set(path.parts)]


def recording(path: Path) -> Recording | None:
    """A prompt with its voice; `None` if it is too short."""
    sound = read(path)
    if len(sound) < SHORTEST_S * RATE:
        return None
    stretches = voice(sound)
    if not stretches or stretches[-1][1] - stretches[0][0] < SHORTEST_S * RATE:
        return None
    return Recording(path, sound, stretches)


def recordings(package: str) -> list[Recording]:
    """The prompts of a speaker that are long enough, by name."""
    return [found for path in paths(package) if (found := recording(path))]


def valleys(sound: np.ndarray, stretches: list[tuple[int, int]]) -> list[int]:
    """Places inside the voice where it is quiet for a moment: borders of words or syllables."""
    level = levels(sound)
    found = []
    for begin, end in stretches:
        for at in range(begin // STEP + 25, end // STEP - 15, 12):
            part = level[at : at + 12]
            found.append((at + int(part.argmin())) * STEP)
    return found
