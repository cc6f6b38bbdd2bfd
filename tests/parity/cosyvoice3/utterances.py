"""Codes of an utterance, as the derivation draws them: the order of text and codes, and repeat-aware draws."""

from collections import deque

import models
import numpy as np
import torch
from models import CODES

from draws import uniform

TEXT_IDS = 300
MARK = TEXT_IDS
START, END, TASK, FILL = CODES, CODES + 1, CODES + 2, CODES + 3
SEED, RESPONSE = 5, 7
TOP_P, TOP_K, WINDOW, SHARE = 0.8, 25, 10, 0.1
MIX = (5, 15)
SILENCE = {1, 2, 28, 29, 55}


def pick(ids: list[int], weights: np.ndarray, number: float) -> int:
    """Draws an id by its weight."""
    return ids[min(int(np.searchsorted(np.cumsum(weights), number * weights.sum(), "right")), len(ids) - 1)]


def drawn(logits: torch.Tensor, allowed: set[int], recent: deque, numbers: list[float]) -> int:
    """Repeat-aware draw."""
    masked = torch.full_like(logits, -torch.inf)
    masked[list(allowed)] = logits[list(allowed)]
    p = masked.double().softmax(0).numpy()
    kept: list[int] = []
    reached = 0.0
    for number in np.argsort(-p, kind="stable"):
        if reached >= TOP_P or len(kept) >= TOP_K:
            break
        kept.append(int(number))
        reached += p[number]
    number = pick(kept, p[kept], numbers[0])
    if sum(other == number for other in recent) >= WINDOW * SHARE:
        p[number] = 0
        rest = [id_ for id_ in range(len(p)) if p[id_] > 0]
        number = pick(rest, p[rest], numbers[1])
    return number


def say(model: models.LanguageModel, header: list[int], text: list[int], recorded: list[int], streamed: bool) -> dict:
    """Codes of a text: `header` up to the mark and a transcript after it, and the codes of a recording."""
    mark = header.index(MARK) + 1
    rows = [("speech", START)] + [("text", number) for number in header[:mark]]
    waiting, recorded = header[mark:] + text, list(recorded)
    said: list[int] = []
    steps, since = 0, 0
    recent: deque = deque(maxlen=WINDOW)
    ends = not streamed
    needs_text = True
    while True:
        while needs_text and not ends:
            if len(waiting) < MIX[0]:
                ends = True
                break
            rows += [("text", number) for number in waiting[: MIX[0]]]
            since = min(len(recorded), MIX[1])
            rows += [("speech", number) for number in recorded[:since]]
            waiting, recorded = waiting[MIX[0] :], recorded[since:]
            needs_text = since == MIX[1]
        if needs_text and ends:
            rows += [("text", number) for number in waiting] + [("speech", TASK)]
            rows += [("speech", number) for number in recorded]
            needs_text = False
        if ends and len(said) >= 20 * len(text):
            break
        numbers = [float(uniform(SEED, RESPONSE, steps, stream)) for stream in (1, 2)]
        special = END if ends else FILL
        number = special
        if ends or since < MIX[1]:
            number = drawn(model.logits(rows), {*range(CODES), special}, recent, numbers)
        steps += 1
        recent.append(number)
        if number == END:
            break
        if number == FILL:
            needs_text = True
            continue
        rows.append(("speech", number))
        said.append(number)
        since += 1
    heard, silence = [], 0
    for number in said:
        silence = silence + 1 if number in SILENCE else 0
        if silence <= 5:
            heard.append(number)
    return {"rows": rows, "said": said, "heard": heard}
