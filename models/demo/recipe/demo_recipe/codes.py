"""The codes of a frame: made from what is said and how, not learned, so that each is easy to say and a small error is a
small fault.

Six books:

0  the phoneme with its stress
1  the phoneme that comes after it
2  place in the phoneme, and how many frames it lasts
3  pitch periods in the frame
4  loudness of the frame's first half, and how much of it is voiced
5  the same of its second half
"""

from __future__ import annotations

import numpy as np

from .config import CODEBOOKS, CODES, FRAME, SAMPLE_RATE
from .kokoro import Melody

VOWELS = "AIOQWYaeoiuæɑɒɔəɛɜɪʊʌᵻ"
CONSONANTS = "bdfhjklmnpstvwzðɡŋθɹɾʃʧʤʒʔᵊ"
# Of the first two books, in the order of their codes; "" is silence.
PHONEMES = ("", *CONSONANTS, *VOWELS, *("ˈ" + vowel for vowel in VOWELS), *("ˌ" + vowel for vowel in VOWELS))
INDEX = {phoneme: code for code, phoneme in enumerate(PHONEMES)}
PLACES, LENGTHS = 8, 8  # the last of each stands for all above
FEWEST, MOST = 7, 40  # pitch periods of a frame: 88 to 500 Hz
QUIETEST, STEP, LEVELS = -6.0, 0.25, 60  # of loudness
VOICED = 4  # 0 to all of a half's three values
LOUDNESS = slice(4, CODEBOOKS)  # the books of it
SIZES = (len(PHONEMES), len(PHONEMES), PLACES * LENGTHS, MOST + 1, LEVELS * VOICED, LEVELS * VOICED)


def of(places: list[tuple[str, int, int]], pitch: np.ndarray, loudness: np.ndarray) -> np.ndarray:
    """Codes i64 `[frames, CODEBOOKS]`. `places` as `voice.lock` gives them; `pitch` in Hz and `loudness` are `[frames,
    6]`.
    """
    frames = len(places)
    made = np.zeros((frames, CODEBOOKS), np.int64)
    for at, (phoneme, place, length) in enumerate(places):
        behind = at + length - place
        made[at, 0] = code(phoneme)
        made[at, 1] = code(places[behind][0]) if behind < frames else code("")
        made[at, 2] = min(place, PLACES - 1) * LENGTHS + min(length, LENGTHS) - 1
    made[:, 3] = periods(pitch)
    for book, half in ((4, slice(0, 3)), (5, slice(3, 6))):
        level = np.clip(np.round((loudness[:, half].mean(1) - QUIETEST) / STEP), 0, LEVELS - 1).astype(np.int64)
        made[:, book] = level * VOICED + (pitch[:, half] > Melody.VOICED).sum(1)
    return made


def code(phoneme: str) -> int:
    """Of the first two books. A stressed consonant is as one without stress; what has no code is silence."""
    return INDEX.get(phoneme, INDEX.get(phoneme.lstrip("ˈˌ"), INDEX[""]))


def periods(pitch: np.ndarray) -> np.ndarray:
    """Pitch periods of each frame: its median pitch in whole periods. Frames without voice go on as the one before."""
    now, chosen = 16, []
    for frame in pitch:
        voiced = frame[frame > Melody.VOICED]
        if len(voiced):
            now = int(np.clip(round(float(np.median(voiced)) * FRAME / SAMPLE_RATE), FEWEST, MOST))
        chosen.append(now)
    return np.array(chosen)


assert max(SIZES) <= CODES
