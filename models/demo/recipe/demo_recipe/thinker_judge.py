"""Judges a thinker as it is served: greedy answers, each from the conversation with the model's own earlier answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from . import features
from .domain import Turn
from .evaluate import words
from .questions import Spoken
from .thinker_data import Part, Template
from .thinker_model import Thinker

LONGEST_ANSWER = 48  # tokens


@dataclass(frozen=True)
class Judged:
    turn: Turn
    voice: str
    answer: str
    position: int  # turns before it
    talk: int = 0  # which of the conversations

    @property
    def right(self) -> bool:
        return words.right(self.turn, self.answer)


@torch.no_grad()
def answers(
    model: Thinker, template: Template, talks: list[list[Spoken]], device: torch.device, behind: str = ""
) -> list[Judged]:
    """Asks all conversations side by side; `behind` is a written message after each spoken turn."""
    histories: list[list[int]] = [[] for _ in talks]
    heard: list[list[torch.Tensor]] = [[] for _ in talks]
    judged = []
    for position in range(max(map(len, talks))):
        asked = [k for k, talk in enumerate(talks) if len(talk) > position]
        windows = features.log_mel([talks[k][position].sound.astype(np.float32) / 32768.0 for k in asked]).to(device)
        counts = (
            torch.zeros(len(asked), dtype=torch.long, device=device)
            .index_add_(0, windows.turn, windows.tokens())
            .tolist()
        )
        for k, rows in zip(asked, model.hear(windows).split(counts), strict=True):
            heard[k].append(rows)
            histories[k] += template.question(Part("", "", talks[k][position].sound, behind), len(rows))
        given = greedy(model, template, [histories[k] for k in asked], [torch.cat(heard[k]) for k in asked], device)
        for k, ids in zip(asked, given, strict=True):
            histories[k] += [*ids, template.stop, *template.newline]
            spoken = talks[k][position]
            judged.append(Judged(spoken.turn, spoken.voice, template.words.decode(ids), position, k))
    return judged


def greedy(
    model: Thinker, template: Template, prompts: list[list[int]], heard: list[torch.Tensor], device: torch.device
) -> list[list[int]]:
    """The likeliest next token until the stop. Reads everything again for each token: short, and fast enough for a few
    hundred turns.
    """
    given: list[list[int]] = [[] for _ in prompts]
    # Those of like length go together.
    order = sorted(range(len(prompts)), key=lambda k: len(prompts[k]))
    for group in (order[at : at + 32] for at in range(0, len(order), 32)):
        open_ones = list(group)
        for _ in range(LONGEST_ANSWER):
            rows = [torch.tensor(prompts[k] + given[k]) for k in open_ones]
            last = torch.tensor([len(row) - 1 for row in rows], device=device)
            ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device)
            hidden = model.read(ids, torch.cat([heard[k] for k in open_ones]))
            scores = model.reference.lm_head(hidden[torch.arange(len(rows), device=device), last])
            scores[:, template.audio_token] = float("-inf")  # stands for sound that was heard
            chosen = scores.argmax(-1).tolist()
            for k, token in zip(open_ones, chosen, strict=True):
                if token != template.stop:
                    given[k].append(token)
            open_ones = [k for k, token in zip(open_ones, chosen, strict=True) if token != template.stop]
            if not open_ones:
                break
    return given


def share_right(judged: list[Judged]) -> float:
    return sum(one.right for one in judged) / max(1, len(judged))


def by(judged: list[Judged], name: Callable[[Judged], str]) -> str:
    """A line of shares, `name` of a judged turn apart."""
    groups = defaultdict(list)
    for one in judged:
        groups[name(one)].append(one)
    return ", ".join(f"{key} {share_right(ones):.2f} of {len(ones)}" for key, ones in sorted(groups.items()))
