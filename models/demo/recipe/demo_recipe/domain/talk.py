"""Conversations: what is said in one session, one to three turns."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from . import topics, words
from .topics import Speaker, Turn, turn
from .unknown import overheard, unknown

# How often a single turn is of a topic.
SINGLE = (
    (topics.arithmetic, 0.22),
    (topics.capital, 0.13),
    (topics.neighbour, 0.10),
    (topics.counting, 0.07),
    (topics.colour, 0.03),
    (topics.sound, 0.03),
    (topics.young, 0.03),
    (topics.spelling, 0.07),
    (topics.repeating, 0.12),
    (topics.exchange, 0.09),
    (topics.tell_name, 0.03),
    (topics.tell_favourite, 0.02),
    (topics.ask_name, 0.01),
    (topics.ask_favourite, 0.01),
    (unknown, 0.14),
)


@dataclass(frozen=True)
class Conversation:
    """The turns of one session, in order."""

    turns: tuple[Turn, ...]


def single(s: Speaker) -> Turn:
    """A turn that needs no other."""
    makers, weights = zip(*SINGLE, strict=True)
    return s.random.choices(makers, weights)[0](s)


# What people say around a question. Not in held-out phrasings, which are few and fixed.
BEFORE = "Good,|So,|Well,|Now,|Please,|Hey,|Right,|And now,|Tell me,|All right,".split("|")
AFTER = "please|now|then".split("|")
# Around these it would become part of what is said, or nobody says it.
BARE = ("repeating", "names", "favourites", "small talk")


def inside(question: str) -> str:
    """A question as it is written behind other words."""
    proper = question.split()[0].rstrip(".,?!'") in ("I", *words.DAYS, *words.MONTHS)
    return question if proper else question[0].lower() + question[1:]


def dressed(t: Turn, r: random.Random) -> Turn:
    """Sometimes with a word before or after it, as people talk."""
    question, p = t.question, r.random()
    if t.topic in BARE or p > 0.3:
        return t
    if p < 0.2:
        return replace(t, question=f"{r.choice(BEFORE)} {inside(question)}")
    return replace(t, question=f"{question[:-1]}, {r.choice(AFTER)}{question[-1]}")


def follow_up(s: Speaker) -> list[Turn]:
    """A question and a second one that is understood only through it."""
    r = s.random
    lead = s.phrase(
        "And {}?|And {}?|What about {}?|And now {}?|What is it for {}?|And for {}?|Then {}?|And how is it for {}?|"
        "The same for {}?|"
        "Now {}?|Or {}?|How is it with {}?|And what of {}?|So how is it for {}?|And then {}?|And with {}?|"
        "How would it be for {}?|"
        "Same question for {}.|What about {}, then?|How does it go for {}?|Next, {}.",
        "How about {}?|And what about {}?",
    )
    kind = r.randrange(4)
    if kind == 0:
        first = topics.capital(s)
        country = r.choice([c for c in words.CAPITALS if c not in first.question])
        second = turn(
            "follow-ups",
            lead.format(country),
            f"The capital of {country} is {words.CAPITALS[country]}.",
            words.CAPITALS[country],
        )
    elif kind == 1:
        first = topics.neighbour(s)
        side = "after" if " after " in first.answer else "before"
        names = words.DAYS if any(d in first.answer for d in words.DAYS) else words.MONTHS
        i = r.randrange(len(names))
        other = names[(i + (1 if side == "after" else -1)) % len(names)]
        second = turn("follow-ups", lead.format(f"{side} {names[i]}"), f"{other} comes {side} {names[i]}.", other)
    elif kind == 2:
        first = topics.sound(s)
        animal = r.choice([a for a in words.SOUNDS if a not in first.answer])
        second = turn(
            "follow-ups", lead.format(f"a {animal}"), f"A {animal} says {words.SOUNDS[animal]}.", words.SOUNDS[animal]
        )
    else:
        first = topics.colour(s)
        thing = r.choice([t for t in words.THINGS if t not in first.answer.lower()])
        second = turn("follow-ups", lead.format(thing), f"{thing} is {words.THINGS[thing]}.", words.THINGS[thing])
    return [first, second]


def remember(s: Speaker) -> list[Turn]:
    """Something told, perhaps something else, then asked for."""
    ask: Callable[[Speaker], Turn] = topics.ask_name
    if s.random.random() < 0.5:
        turns = [topics.tell_name(s)]
    else:
        turns = [topics.tell_favourite(s)]
        ask = partial(topics.ask_favourite, kind=next(iter(s.told)))
    if s.random.random() < 0.35:
        turns.append(_other(s))
    return [*turns, ask(s)]


def _other(s: Speaker) -> Turn:
    """A turn that neither tells nor asks for anything remembered."""
    while (t := single(Speaker(s.random, s.held_out))).topic in ("names", "favourites", "memory"):
        pass
    return t


def conversation(r: random.Random, held_out: bool = False) -> Conversation:
    """A random conversation. Two in five have more than one turn."""
    s = Speaker(r, held_out)
    p = r.random()
    if p < 0.6:
        turns = [single(s)]
    elif p < 0.75:
        turns = follow_up(s)
    elif p < 0.9:
        turns = remember(s)
    else:
        turns = [single(s), single(s)]
    return Conversation(tuple(turns if held_out else (dressed(t, r) for t in turns)))


def conversations(count: int, seed: int, held_out: bool = False) -> list[Conversation]:
    """`count` conversations; the same for the same seed."""
    r = random.Random(seed)
    return [conversation(r, held_out) for _ in range(count)]


# How often a conversation to train with is one of those that are missed most, small talk, or no question of the domain;
# and how often a question is asked with a hesitation.
HARD_SHARE, COURTEOUS_SHARE, OVERHEARD_SHARE, HESITANT_SHARE = 0.15, 0.05, 0.1, 0.08
HESITATIONS = "Um,|Uh,|Er,|Hmm,|Um, well,|Let me see,".split("|")


def practice(r: random.Random) -> Conversation:
    """A random conversation to train with: as `conversation` gives it, but that sums of tens, what leans on the turn
    before, small talk and what asks for nothing come more often, and that some people hesitate.
    """
    p = r.random()
    if p < HARD_SHARE:
        s = Speaker(r)
        turns = tuple(follow_up(s) if r.random() < 0.5 else [topics.tens(s)])
    elif p < HARD_SHARE + COURTEOUS_SHARE:
        turns = (topics.exchange(Speaker(r)),)
    elif p < HARD_SHARE + COURTEOUS_SHARE + OVERHEARD_SHARE:
        turns = (overheard(r),)
    else:
        turns = conversation(r).turns
    return Conversation(tuple(hesitant(t, r) for t in turns))


def hesitant(t: Turn, r: random.Random) -> Turn:
    """Sometimes with a hesitation before the question or in it."""
    if r.random() > HESITANT_SHARE or t.topic == "repeating":
        return t
    asked = t.question.split()
    at = 0 if len(asked) < 4 or r.random() < 0.6 else r.randrange(1, len(asked) - 1)
    said = r.choice(HESITATIONS)
    if at:
        said = "..." + said.split(",")[0].lower() + "..."
        return replace(t, question=" ".join([*asked[:at], said, *asked[at:]]))
    return replace(t, question=f"{said} {inside(t.question)}")
