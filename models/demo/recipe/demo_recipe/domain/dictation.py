"""Sentences for transcription only: they mean nothing, so that each word must be heard."""

import random
import re

from .talk import inside, practice
from .topics import Turn, turn
from .unknown import ANSWER

PIECES, LONGEST_PIECE = (2, 3), 4  # how many, and of how many words at most


def dictation(r: random.Random) -> Turn:
    """Pieces of what callers say, one behind the other. As a question nobody understands it."""
    said: list[str] = []
    for _ in range(r.randint(*PIECES)):
        heard = re.sub(r"[^\w\s']", " ", inside(r.choice(practice(r).turns).question)).split()
        size = r.randint(1, min(LONGEST_PIECE, len(heard)))
        at = r.randrange(len(heard) - size + 1)
        said += heard[at : at + size]
    text = " ".join(said)
    return turn("dictation", f"{text[0].upper()}{text[1:]}.", ANSWER, "know")
