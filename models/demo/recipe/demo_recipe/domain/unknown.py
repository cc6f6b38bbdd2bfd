"""Questions outside the domain, and what is said to nobody in particular. All have one answer: that the model does not
know.
"""

import random

from . import words
from .topics import Speaker, Turn, sentence, turn

ANSWER = "Sorry, I don't know that."

# {p} a person, {w} a field, {c} a city, and so on: filled from the lists below.
TRAIN = (
    "Who wrote {b}?|When was {p} born?|How tall is {p}?|What is the weather in {c}?|Will it rain tomorrow?|"
    "What time is it?|What is the date?|"
    "Who is the president of {n}?|How many people live in {c}?|How far is it to {c}?|Play some {m}.|"
    "Play a song by {p}.|Tell me a joke.|Tell me a story.|"
    "Turn on the lights.|Turn off the radio.|Set an alarm for seven.|Call my mother.|Send a message to {p}.|"
    "How do I cook {f}?|"
    "What is the price of {f}?|How old is {p}?|Who painted {b}?|Who won the game last night?|What is {w}?|"
    "Explain {w} to me.|"
    "What is the meaning of life?|How does a {g} work?|Who invented the {g}?|"
    "What is the largest {k} in the world?|What is the longest {k} in the world?|"
    "Translate hello to French.|How do you say water in German?|What should I wear today?|"
    "Where can I buy a {g}?|Book a table for two.|"
    "What is the news today?|What is the square root of nine?|How many stars are there?|"
    "How deep is the ocean?|How heavy is an elephant?|"
    "Why is the sky blue?|When does the train leave?|Who was the first man on the moon?|"
    "What is on television tonight?|Order a pizza.|"
    "Where is {c}?|What language do they speak in {n}?|What is the population of {n}?|Who discovered {w}?|"
    "Sing a song.|Read me the news.|"
    "How fast is a {g}?|What is inside a {g}?|Why do we need {w}?|Can you drive a car?|"
    "Which team is the best?|What did I eat yesterday?|"
    "What is meant by {w}?|What's the meaning of {w}?|Define {w}.|Tell me something about {w}.|"
    "What do you mean by {w}?|"
    "Does {w} mean anything?|"
    "What does a {j} do?|What does a {j} need?|What does a {g} look like?|What does that word mean?|"
    "What does it mean to be free?|"
    "What does {p} have to do with {w}?|How many {x} does a {a} have?|How many {x} are there on a {a}?|"
    "How many people work for a {j}?|"
    "What is the deepest {k} on this planet?|Where is the highest {k}?|What's the coldest {k} in Europe?|"
    "Which {k} is the smallest?"
).split("|")
HELD_OUT = (
    "What is the best movie of the year?|Where was {p} born?|Who is the king of {n}?|Recommend a good book.|"
    "What is the temperature outside?|"
    "How do I get to the airport?|What does {w} mean?|When was the {g} invented?|How much does a {g} cost?|"
    "What is the highest {k} on earth?|"
    "Open the window.|Wake me up at six.|How do I fix a {g}?|Who sings this song?|Is {f} good for me?|"
    "How long does it take to cook {f}?|"
    "What happened in the war?|Which is the biggest planet?|How many bones does a man have?|"
    "Who is the richest man in the world?"
).split("|")
FILL = {
    "b": "Hamlet|the Bible|Faust|that book|Moby Dick|this poem|the Odyssey|War and Peace",
    "p": "Mozart|Einstein|Shakespeare|Napoleon|Beethoven|Newton|Picasso|Elvis|Caesar|Darwin",
    "c": "Boston|Chicago|Hamburg|Sydney|Milan|Dallas|Munich|Seattle|Toronto|Denver",
    "n": "America|France|Spain|Japan|Africa|Poland|Brazil|Sweden",
    "m": "jazz|music|rock|piano music|opera",
    "f": "rice|pasta|an egg|chicken|potatoes|beans|salmon",
    "w": "gravity|philosophy|electricity|chemistry|love|time|energy|history|democracy|magic",
    "g": "telephone|computer|engine|camera|rocket|battery|telescope|piano|airplane|fridge",
    "k": "river|mountain|lake|animal|city|island|country|desert",
}
# Of questions to train with alone.
FILL_TRAIN = FILL | {
    "j": "doctor|lawyer|pilot|baker|teacher|sailor|painter|farmer|dentist|king",
    "x": "legs|teeth|eyes|ears|wings|strings|wheels|keys|windows|fingers",
    "a": "spider|house|guitar|car|child|bicycle|hand|piano|truck|family|snake",
}


def unknown(s: Speaker) -> Turn:
    question = s.random.choice(HELD_OUT if s.held_out else TRAIN)
    for letter, choices in (FILL if s.held_out else FILL_TRAIN).items():
        question = question.replace("{" + letter + "}", s.random.choice(choices.split("|")))
    return turn("unknown", question, ANSWER, "know")


# What people say that asks for nothing that the model knows: read aloud, told, ordered. Filled from the lists below; in
# training only.
OVERHEARD = (
    "{N} {V} the {A} {O} {T}.|{N} never {V} the {O}, and nobody {S} why.|The {A} {O} {P} was {Q} {T}.|"
    "When {N} {V} the {O}, it was {Q}.|"
    "I {S} that {N} {V} a {A} {O}.|There is a {A} {O} {P}.|We should {D} the {O} {T}.|Please {D} the {O} {P}.|"
    "{D} the {A} {O}.|"
    "{D} it {T}.|He said that the {O} {P} is {Q}.|She looked at the {A} {O} and began to {D} it.|"
    "They wanted to {D} {M} {O}s before noon.|"
    "After that, {N} {V} the {O} and went away.|Could you {D} the {O} {P}?|Why did {N} {D} the {A} {O}?|"
    "Where did you put the {A} {O}?|"
    "How many {O}s did {N} {D} {T}?|When will {N} {D} the {O}?|Who {V} the {O} {P}?|Is the {O} {P} still {Q}?|"
    "Does the {O} belong to {N}?|"
    "It was a {A} and {Q} day.|That is not my {O}.|I would like a {A} {O}, please.|Turn {R} {P}.|Go {R} and then {R}.|"
    "Move {M} steps {R}.|"
    "Put the {O} {P}.|Let us talk about {I}.|I read a book about {I}.|Nobody {S} much about {I}.|"
    "What do you think about {I}?|"
    "Can you explain {I}?|Which {O} is the best for {I}?|My {O} is {Q} because of {I}.|Add the {O} to my list.|"
    "Remind me to {D} the {O} {T}.|Find me a {A} {O}.|Where is the nearest {O}?|What is wrong with the {O}?|"
    "The {O} costs {M} dollars.|I will be back in {M} minutes.|"
    "She has {M} {O}s and a {A} {O}.|{M} {M} {M} {M}.|{M}, {M}, {M}, {M} and {M}.|My number is {M} {M} {M} {M} {M}.|"
    "Room {M}, floor {M}."
).split("|")
OVERHEARD_FILL = {
    "N": "I|you|we|they|everybody|the lawyer|the old sailor|her cousin|his neighbor|Mrs. Baker|Mr. Stone|the judge|"
    "my wife|the gentleman|"
    "the engineer|the policeman|the stranger|the queen|the young lady|the manager|the painter|the soldiers|"
    "the company|the guests",
    "V": "followed|ordered|forgot|repaired|visited|answered|called|believed|remembered|promised|refused|expected|"
    "noticed|wrote|threw|"
    "caught|taught|understood|mentioned|described|destroyed|collected|borrowed|returned|admired|feared|discovered|"
    "covered",
    "D": "open|close|send|bring|delete|start|repair|carry|wash|hide|follow|check|print|charge|finish|change|throw|"
    "fetch|order|cancel|"
    "lift|measure|record|share|test|pull|push|switch off|look after|pick up",
    "A": "curious|dark|narrow|silver|expensive|terrible|beautiful|dusty|ancient|pleasant|dangerous|gentle|rusty|tall|"
    "famous|foreign|"
    "private|public|lonely|secret|huge|tiny|violent|modern|proper|wild|certain|sudden",
    "O": "message|window|garage|umbrella|carriage|newspaper|hammer|blanket|suitcase|document|printer|ladder|station|"
    "office|village|"
    "church|bicycle|wallet|question|journey|machine|account|package|screen|record|pocket|stair|cousin|horse|valley|"
    "project|lesson",
    "T": "this evening|next week|a long time ago|before breakfast|in a hurry|at midnight|without a word|"
    "every other week|for an hour|"
    "tomorrow|on Thursday|in October|once again|as usual|the day after|in the end",
    "P": "behind the station|across the street|next to the door|in the drawer|at the corner|upstairs|inside the box|"
    "beside the fire|"
    "on the roof|at the airport|in the valley|under the stairs|near the church|in the hall|outside|over there",
    "Q": "quite ready|rather late|almost gone|very strange|not finished|too expensive|out of order|full of dust|"
    "hardly used|"
    "perfectly still|a great pleasure|worth nothing|hard to find|no longer there",
    "S": "knows|thought|hoped|wondered|guessed|believes|feels|heard|supposed|imagined|agreed|found out",
    "R": "left|right|forward|back|around|up|down|north|straight on",
    "M": "|".join((*words.ONES, *words.TENS, "a hundred")),
    "I": "politics|the weather|football|religion|the economy|old machines|French history|marriage|insurance|"
    "the stock market|medicine|"
    "gardening|the elections|modern art|space travel|physics|poetry|cooking|traffic|my health|computers|fishing|"
    "the law|education",
}
PLAIN_SHARE = 0.15  # of what is overheard: one of the sentences that are to be repeated, without being asked for


def overheard(r: random.Random) -> Turn:
    """Something that is no question of the domain, in many more words than it has."""
    said = sentence(r) if r.random() < PLAIN_SHARE else r.choice(OVERHEARD)
    for letter, choices in OVERHEARD_FILL.items():
        while "{" + letter + "}" in said:
            said = said.replace("{" + letter + "}", r.choice(choices.split("|")), 1)
    return turn("unknown", said, ANSWER, "know")
