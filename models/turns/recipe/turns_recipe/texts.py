"""Texts of training: what callers say, in pieces between which they may pause. The judged texts are others
(`tests/turns/texts.py`).
"""

from __future__ import annotations

import random

from .spoken import Piece

NAMES = (
    "Anna Peter Maria David Sophie Michael Laura Thomas Emily Daniel Olivia Robert Hannah George Claire Martin Julia "
    "Patrick Helen Simon Nadia Oscar Rita Victor Wendy Xavier Yvonne Zoe Karim Leila"
).split()
SURNAMES = (
    "Baker Collins Fischer Morgan Novak Parker Quinn Russo Santos Turner Walsh Young Fletcher Harper Jensen Keller "
    "Lambert Murphy Nolan Osborne Price Reyes Sutton Vance"
).split()
CITIES = (
    "Boston Leeds Toronto Madrid Vienna Chicago Dublin Bristol Oslo Denver Prague Seattle Glasgow Milan Phoenix Geneva"
).split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday tomorrow tonight".split()
MONTHS = "January February March April May June July August September October November December".split()
THINGS = (
    "a taxi|a table for four|the black jacket|two tickets|a new password|the blue suitcase|my last invoice|a plumber|"
    "the small backpack|a haircut|a room with a view|my prescription|the morning train|a bigger screen|an umbrella|"
    "a bag of apples|the manager|some batteries|a longer cable|the spare key|a vegetarian pizza|a cup of green tea|"
    "the wooden chairs|a ladder|the printed report|my winter coat|a parking space|the second edition|a gift card"
).split("|")
FOODS = (
    "milk eggs bread butter rice tomatoes onions cheese apples lemons pasta coffee sugar flour yoghurt carrots beans "
    "honey mushrooms potatoes chicken garlic olives spinach"
).split()
VERBS = (
    "order|book|cancel|change|return|pick up|ask about|pay for|find|replace|move|check|send back|reserve|look at"
).split("|")
PLACES = (
    "near the station|in the city centre|next to the bank|at the airport|by the river|on the second floor|"
    "behind the school|at my mother's house|in the north of the country|across from the park|at the office"
).split("|")
REASONS = (
    "the old one is broken|my flight was late|I have to work that day|it arrived yesterday|the price has changed|"
    "nobody answered the phone|I forgot my card|we are five people now|the app keeps crashing|my daughter is ill|"
    "it doesn't fit|I need it for the weekend|the door was locked|we moved last month|the battery is empty"
).split("|")
QUESTIONS = (
    "What time do you open on {day}?|How much does {thing} cost?|Can you tell me where {thing} is?|Is {city} far from "
    "here?|Do you have anything cheaper?|Could you repeat that, please?|Who is in charge of this?|When does the next "
    "bus to {city} leave?|Will it rain in {city} {day}?|How long does it take to get to {city}?|Why was I charged "
    "twice?|Are you open on {day}?|Which one do you recommend?|Can I bring my dog?|What is the weather like in "
    "{city}?|Did {name} call back?|Is there a discount for students?|Where can I park?|How do I reset it?"
).split("|")
STATEMENTS = (
    "I would like {thing}.|I want to {verb} {thing}.|My name is {name} {surname}.|I am looking for {thing}.|I live in "
    "{city}.|It stopped working on {day}.|We are staying {place}.|I already spoke to {name} about it.|That sounds "
    "good.|No, thank you.|Yes, please.|I think so.|That's all for today.|{name} will pick it up on {day}.|Please call "
    "me back.|I don't remember.|The second one.|On {day}, please.|I prefer the window.|Nothing else, thanks.|It was "
    "delivered to the wrong address.|You can send it to {city}.|I am fine with that.|We have two children.|Let's do "
    "that.|I'm not sure about it.|Please turn off the lights.|Set an alarm for seven.|I paid in cash.|It is quite "
    "urgent.|Tell me a joke.|Play some music.|Thank you very much.|Goodbye.|I have an appointment with {name}.|The "
    "red one, please.|Just a small one.|About twenty minutes ago.|At half past eight.|Never mind.|In the afternoon."
).split("|")
OPENINGS = (
    "Well|Okay|So|Hello|Hi there|Actually|To be honest|Good morning|Right|Listen|Let me see|I mean|Yes|No|Sorry"
).split("|")
FILLERS = "um|uh|er|hmm|you know|let me think|like|uhm".split("|")
STARTS = (
    "I would like to {verb}|I was wondering if|Can you tell me the|I need to talk to|My address is|It happened on|The "
    "problem is that|I think it was|We wanted to go to|Could you please|I'm calling about|What I meant was|She said "
    "that|There should be|The number is|I want|You could try the|It's somewhere|He works for|Do you know when|Is it "
    "possible to|The name of the street is|I just wanted to|We have been waiting for|Maybe we should|I used to live in"
).split("|")
RESTS = (
    "{thing}|the one from {city}|{name} {surname}|{thing} {place}|the {day} after that|{verb} {thing}|about two "
    "weeks|the people {place}|something else|{thing} for my sister|another day|the green one|what you told {name}"
).split("|")
CONDITIONS = (
    "If you have time on {day}|When I came home|Before we go to {city}|Because {reason}|Since {reason}|After the "
    "meeting with {name}|If that is possible|Although {reason}|While I was waiting {place}|As soon as {name} is "
    "back|If it doesn't work|Unless {reason}|Once we are in {city}|In case {reason}|Until {day}"
).split("|")
MAINS = (
    "we could {verb} {thing}|I want to {verb} {thing}|please call {name}|{name} had left already|I found {thing} "
    "{place}|can you {verb} {thing} for me|I would rather stay {place}|you should ask {name}|there was nobody "
    "{place}|it makes no difference|I will take {thing}|let me know"
).split("|")
DIGITS = "zero one two three four five six seven eight nine".split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
LETTERS = "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z".split()


def filled(r: random.Random, text: str) -> str:
    """Returns a text with words in its slots."""
    return text.format(
        name=r.choice(NAMES), surname=r.choice(SURNAMES), city=r.choice(CITIES), day=r.choice(DAYS),
        thing=r.choice(THINGS), verb=r.choice(VERBS), place=r.choice(PLACES), reason=r.choice(REASONS),
    )  # fmt: skip


def plain(r: random.Random) -> list[Piece]:
    """A question or a statement without a pause."""
    return [Piece(filled(r, r.choice(r.choice((QUESTIONS, STATEMENTS)))), "end")]


def opening(r: random.Random) -> list[Piece]:
    return [Piece(r.choice(OPENINGS) + ",", "clause"), *plain(r)]


def hesitant(r: random.Random) -> list[Piece]:
    """One or two hesitations, with or without a filled pause."""
    pieces = [Piece(filled(r, r.choice(STARTS)) + r.choice(("", ",", "...")), "hesitation")]
    if r.random() < 0.55:
        pieces.append(Piece(r.choice(FILLERS) + r.choice((",", "...", "")), "hesitation"))
    if r.random() < 0.35:
        pieces.append(Piece(filled(r, r.choice(("the", "some kind of", "maybe", "I think", "a", "with my", "at the"))),
                            "hesitation"))  # fmt: skip
    pieces.append(Piece(filled(r, r.choice(RESTS)) + r.choice((".", ".", "?")), "end"))
    return pieces


def conditional(r: random.Random) -> list[Piece]:
    """A subordinate clause before the main one, or two clauses."""
    if r.random() < 0.7:
        return [
            Piece(filled(r, r.choice(CONDITIONS)) + ",", "clause"),
            Piece(filled(r, r.choice(MAINS)) + r.choice((".", ".", "?")), "end"),
        ]
    link = r.choice(("and", "but", "so", "because", "or"))
    return [
        Piece(filled(r, r.choice(STATEMENTS)).rstrip(".") + ",", "clause"),
        Piece(f"{link} {filled(r, r.choice(MAINS))}.", "end"),
    ]


def listed(r: random.Random) -> list[Piece]:
    """A list, whose items may each have a pause behind them."""
    items = r.sample(FOODS, r.randint(3, 5)) if r.random() < 0.6 else r.sample(THINGS, r.randint(2, 4))
    start = r.choice(("I need", "Please add", "We have", "I bought", "Could you bring", "There were", "Send me"))
    pieces = [Piece(f"{start} {items[0]},", "list"), *(Piece(f"{item},", "list") for item in items[1:-1])]
    return [*pieces, Piece(f"and {items[-1]}.", "end")]


def number(r: random.Random) -> list[Piece]:
    """A number in groups."""
    groups = [" ".join(r.choices(DIGITS, k=r.choice((2, 3, 3, 4)))) for _ in range(r.randint(2, 4))]
    if r.random() < 0.3:
        groups = [f"{r.choice(TENS)} {r.choice(DIGITS[1:])}" for _ in groups]
    start = r.choice(("It's", "My number is", "The code is", "", "The order is number", "Call me on", "Card number"))
    first, *rest = groups
    pieces = [Piece(f"{start} {first}".strip() + r.choice((",", ",", "")), "number")]
    pieces += [Piece(group + r.choice((",", ",", "")), "number") for group in rest[:-1]]
    return [*pieces, Piece(rest[-1] + ".", "end")]


def spelled(r: random.Random) -> list[Piece]:
    """A spelled name or a code, in groups of letters."""
    name = r.choice(SURNAMES)
    letters = list(name.upper()) if r.random() < 0.6 else r.choices(LETTERS, k=r.randint(3, 7))
    groups, at = [], 0
    while at < len(letters):
        count = r.choice((1, 2, 2, 3))
        groups.append(", ".join(letters[at : at + count]))
        at += count
    start = r.choice((f"{name},", "That is spelled", "It's written", "My surname is", "The plate is", ""))
    groups[0] = f"{start} {groups[0]}".strip()
    return [*(Piece(group + ",", "spelled") for group in groups[:-1]), Piece(groups[-1] + ".", "end")]


def date(r: random.Random) -> list[Piece]:
    """A time or an address that comes in parts."""
    if r.random() < 0.5:
        return [
            Piece(f"{r.choice(('On', 'Maybe on', 'It was'))} {r.choice(DAYS[:7])},", "clause"),
            Piece(
                f"the {r.choice(('third', 'fifth', 'ninth', 'twelfth', 'twentieth'))} of {r.choice(MONTHS)},", "list"
            ),
            Piece(f"at {r.choice(TENS[:1] + DIGITS[3:])}.", "end"),
        ]
    street = r.choice(("Oak Street", "Mill Lane", "Park Avenue", "Church Road", "Station Road"))
    return [
        Piece(f"{r.choice(TENS)} {r.choice(DIGITS[1:])} {street},", "list"),
        Piece(f"{r.choice(CITIES)}.", "end"),
    ]


def several(r: random.Random) -> list[Piece]:
    """Two sentences of one turn."""
    first = r.choice((plain, opening, conditional))(r)
    return [*first[:-1], Piece(first[-1].text, "sentence"), *r.choice((plain, conditional, hesitant))(r)]


MAKERS = {plain: 5, opening: 2, hesitant: 6, conditional: 4, listed: 3, number: 3, spelled: 2, date: 2, several: 4}


def turn(r: random.Random) -> list[Piece]:
    """A random turn of a caller."""
    return r.choices(list(MAKERS), list(MAKERS.values()))[0](r)
