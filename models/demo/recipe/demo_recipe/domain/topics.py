"""One function a topic: from a random generator and what the caller has told so far to a turn.

Every topic has phrasings to train with and phrasings that are held out, told apart by `Speaker.held_out`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from . import words
from .words import number


@dataclass(frozen=True)
class Turn:
    """One question with its only right answer."""

    topic: str
    question: str
    answer: str
    # The words of the answer that decide whether it is right, in lower case, in this order.
    key: tuple[str, ...]


@dataclass
class Speaker:
    """A caller: the random generator, true for held-out phrasings, and what the model was told before."""

    random: random.Random
    held_out: bool = False
    told: dict[str, str] = field(default_factory=dict)

    def phrase(self, train: str, held_out: str) -> str:
        """One of the phrasings, which are separated by '|'."""
        return self.random.choice((held_out if self.held_out else train).split("|"))


def turn(topic: str, question: str, answer: str, key: str) -> Turn:
    """A turn whose sentences start with a capital letter."""
    return Turn(topic, question[0].upper() + question[1:], answer[0].upper() + answer[1:], tuple(key.lower().split()))


OPERATIONS = {"plus": lambda a, b: a + b, "minus": lambda a, b: a - b, "times": lambda a, b: a * b}


def arithmetic(s: Speaker) -> Turn:
    r = s.random
    operation = r.choice(("plus", "plus", "minus", "minus", "times"))
    top = 12 if operation == "times" else r.choice((10, 20, 20, 100))
    a, b = r.randint(0, top), r.randint(0, top)
    if operation == "minus" and b > a:
        a, b = b, a
    if operation == "plus" and a + b > 100:
        b = r.randint(0, 100 - a)
    return _sum(s, operation, a, b)


def tens(s: Speaker) -> Turn:
    """A sum of two-digit numbers, of which half are tens."""
    r = s.random
    operation = r.choice(("plus", "minus"))
    a, b = (10 * r.randint(1, 10) if r.random() < 0.5 else r.randint(10, 99) for _ in range(2))
    if operation == "minus":
        return _sum(s, operation, max(a, b), min(a, b))
    if a + b > 100:
        b = (100 - a) // 10 * 10
    return _sum(s, operation, a, b)


def _sum(s: Speaker, operation: str, a: int, b: int) -> Turn:
    result = number(OPERATIONS[operation](a, b))
    asked = f"{number(a)} {operation} {number(b)}"
    question = s.phrase(
        "What is {}?|What is {}?|How much is {}?|{}?|Tell me {}.|Compute {}.|What does {} make?|"
        "I want to know {}.|Do you know what {} is?|What do you get for {}?|Give me {}.|How many is {}?|"
        "What's the result of {}?|"
        "Calculate {}.|What would {} be?",
        "What's {}?|Can you work out {}?",
    ).format(asked)
    return turn("arithmetic", question, f"{asked} is {result}.", result)


def capital(s: Speaker) -> Turn:
    country = s.random.choice(list(words.CAPITALS))
    question = s.phrase(
        "What is the capital of {}?|What is the capital of {}?|Tell me the capital of {}.|"
        "Which city is the capital of {}?|The capital of {}?|"
        "Name the capital of {}.|I want to know the capital of {}.|Can you tell me the capital of {}?|"
        "What city is the capital of {}?|"
        "Which is the capital of {}?|Say the capital of {}.|Give me the capital of {}.|What capital does {} have?|"
        "I need the capital city of {}.|Which capital has {}?|What's the name of the capital of {}?|"
        "What city is {}'s capital?",
        "What's the capital of {}?|Do you know the capital of {}?|What is the capital city of {}?",
    ).format(country)
    city = words.CAPITALS[country]
    return turn("capitals", question, f"The capital of {country} is {city}.", city)


def neighbour(s: Speaker) -> Turn:
    """The day or month before or after."""
    kind, names = s.random.choice((("day", words.DAYS), ("month", words.MONTHS)))
    side = s.random.choice(("after", "before"))
    i = s.random.randrange(len(names))
    other = names[(i + (1 if side == "after" else -1)) % len(names)]
    question = s.phrase(
        "What {k} comes {s} {n}?|Which {k} comes {s} {n}?|What {k} is {s} {n}?|What comes {s} {n}?|"
        "Name the {k} {s} {n}.|The {k} {s} {n}?|"
        "What is the {k} {s} {n}?|Can you tell me what {k} comes {s} {n}?|Do you know the {k} {s} {n}?|"
        "What is {s} {n}?|"
        "Say which {k} comes {s} {n}.|Give me the {k} that comes {s} {n}.|I want to know the {k} {s} {n}.|"
        "What's the {k} {s} {n}?|"
        "What {k} do we have {s} {n}?",
        "Tell me the {k} {s} {n}.|Which {k} is {s} {n}?",
    )
    return turn(
        "days and months", question.format(k=kind, s=side, n=names[i]), f"{other} comes {side} {names[i]}.", other
    )


def counting(s: Speaker) -> Turn:
    r = s.random
    a = r.randint(0, 20)
    b = a + r.randint(2, 7)
    if r.random() < 0.35:
        numbers = list(range(b, a - 1, -1))
        question = s.phrase(
            "Count down from {} to {}.|Count backwards from {} to {}.|Now count down from {} to {}.|"
            "Can you count down from {} to {}?|Go down from {} to {}.|Count down for me from {} to {}.|"
            "Could you count down from {} to {}?|Count back from {} to {}.|Please count backwards from {} to {}.|"
            "Please go down from {} to {}.|Count downwards from {} to {}.",
            "Please count down from {} to {}.",
        )
    else:
        numbers = list(range(a, b + 1))
        question = s.phrase(
            "Count from {} to {}.|Please count from {} to {}.|Count up from {} to {}.|"
            "Could you count from {} to {}?|Start at {} and count to {}.|Count the numbers from {} to {}.|"
            "Count for me from {} to {}.|"
            "I want you to count from {} to {}.|Would you count from {} to {}?",
            "Can you count from {} to {}?",
        )
    said = ", ".join(number(n) for n in numbers)
    return turn("counting", question.format(number(numbers[0]), number(numbers[-1])), said + ".", said.replace(",", ""))


def colour(s: Speaker) -> Turn:
    thing = s.random.choice(list(words.THINGS))
    question = s.phrase(
        "What color is {}?|What color is {}?|Which color is {}?|What is the color of {}?|Name the color of {}.|"
        "Do you know the color of {}?|Can you tell me what color {} is?|Say the color of {}.|Which color has {}?|"
        "Tell me what color {} is.|{} has which color?|What is {} colored?|What's the color of {}?|What color has {}?|"
        "Of what color is {}?",
        "Tell me the color of {}.|What color does {} have?",
    )
    return turn("colours", question.format(thing), f"{thing} is {words.THINGS[thing]}.", words.THINGS[thing])


def sound(s: Speaker) -> Turn:
    animal = s.random.choice(list(words.SOUNDS))
    question = s.phrase(
        "What does a {} say?|What sound does a {} make?|How does a {} sound?|How does a {} go?|"
        "Make the sound of a {}.|What is the sound of a {}?|Do you know what a {} says?|What is the noise of a {}?|"
        "Which noise is made by a {}?|Tell me how a {} sounds.|What does a {} sound like?|A {} makes what sound?|"
        "Say what a {} says.|"
        "What noise comes from a {}?|Which noise do you hear from a {}?|What's the sound that a {} makes?",
        "Which sound does a {} make?|What noise does a {} make?",
    )
    return turn("animals", question.format(animal), f"A {animal} says {words.SOUNDS[animal]}.", words.SOUNDS[animal])


def young(s: Speaker) -> Turn:
    animal = s.random.choice(list(words.YOUNG))
    question = s.phrase(
        "What is a baby {} called?|What do you call a baby {}?|How do you call a baby {}?|"
        "What is the name of a baby {}?|Tell me what a baby {} is called.|What is the young of a {} called?|"
        "Name the baby of a {}.|A baby {} is called what?|Tell me the name of a young {}.|The young of a {}?|"
        "What's the young of a {} called?|What's the name for a baby {}?",
        "What is a young {} called?|What's a baby {} called?",
    )
    return turn(
        "young animals", question.format(animal), f"A baby {animal} is a {words.YOUNG[animal]}.", words.YOUNG[animal]
    )


def spelling(s: Speaker) -> Turn:
    word = s.random.choice(words.SPELLED)
    letters = ", ".join(word.upper())
    question = s.phrase(
        "Spell {}.|Spell the word {}.|How do you spell {}?|How is {} spelled?|Could you spell {}?|"
        "Spell {} for me.|How do I spell the word {}?|What are the letters of {}?|Would you spell {}?|Now spell {}.|"
        "The letters of {}?",
        "Please spell {}.|Can you spell {}?",
    ).format(word)
    return turn("spelling", question, f"{word} is spelled {letters}.", " ".join(word))


def sentence(r: random.Random) -> str:
    """A short sentence to repeat."""
    form = r.random()
    thing = r.choice(words.OBJECTS) if r.random() < 0.4 else f"{r.choice(words.KINDS)} {r.choice(words.OBJECTS)}"
    if form < 0.45:
        body = f"{r.choice(words.PEOPLE)} {r.choice(words.DEEDS)} the {thing}."
    elif form < 0.6:
        body = f"the {thing} is {r.choice(words.PLACES)}."
    elif form < 0.75:
        body = f"{r.choice(words.PEOPLE)} {r.choice(('is', 'was'))} {r.choice(words.PLACES)}."
    elif form < 0.88:
        body = (
            f"we {r.choice(('saw', 'found', 'need', 'want', 'like', 'bought', 'lost'))} the {thing} "
            f"{r.choice(words.TIMES)}."
        )
    else:
        body = r.choice(words.STATES).format(r.choice(words.KINDS))
    return body[0].upper() + body[1:]


def repeating(s: Speaker) -> Turn:
    said = sentence(s.random)
    lead = s.phrase(
        "Say after me: {}|Repeat after me: {}|Please repeat: {}|Please say: {}|Repeat: {}|Say: {}|Now say: {}|"
        "Repeat this sentence: {}|Please say after me: {}|Could you repeat: {}|Would you say after me: {}|"
        "Repeat the sentence: {}|"
        "Just say: {}|Say the following: {}|Say these words: {}|Repeat these words: {}|Can you say: {}",
        "Can you repeat this: {}|Say this: {}",
    )
    return turn("repeating", lead.format(said[0].lower() + said[1:]), said, said.lower().rstrip("."))


# Fixed exchanges: phrasings to train with, phrasings held out, the answer, the words that decide.
EXCHANGES = (
    (
        (
            "Hello.|Hi.|Hello there.|Hi there.|Good morning.|Good evening.|Hey.|Hey there.|Hello hello.|Good day.|"
            "Hello, good morning.|"
            "Hi, good evening.|Hello to you.|Greetings.|Well, hello."
        ),
        "Good afternoon.|Hey, hello.",
        "Hello! How can I help you?",
        "help",
    ),
    (
        (
            "Who are you?|What are you?|What is your name, machine?|Introduce yourself.|Who am I talking to?|"
            "What is your name?|Can you tell me who you are?|Tell me about yourself.|Please introduce yourself.|"
            "And who are you?|"
            "So who are you?|What are you called?|Who is this?|Who is speaking?"
        ),
        "Tell me who you are.|Say, who are you?",
        "I am a small voice model that runs on your own machine.",
        "small voice model",
    ),
    (
        (
            "What can you do?|What can you do for me?|What do you know?|Help.|How can you help me?|"
            "What can I ask you?|Can you help me?|Show me what you can do.|What do you do?|What are you good at?|"
            "What can I do here?|"
            "How do you work?|What are you for?|I need help.|Are you able to help me?|What things can you do?|"
            "What can you be asked?|"
            "What could you do for me?|Are you able to do things for me?"
        ),
        "Tell me what you can do.|What are you able to do?",
        "I can add numbers, name capitals, spell words, count, and remember your name.",
        "add numbers",
    ),
    (
        (
            "Thank you.|Thanks.|Thank you very much.|Thanks a lot.|Thank you so much.|Great, thank you.|"
            "Thanks for your help.|"
            "Good, thanks.|That is very kind, thank you.|Thank you, that was helpful.|Nice, thanks.|All right, thanks.|"
            "Very good, thank you."
        ),
        "Many thanks.|Okay, thank you.",
        "You are welcome.",
        "welcome",
    ),
    (
        (
            "Goodbye.|Bye.|Bye bye.|See you later.|Good night.|Bye for now.|See you soon.|I have to go, bye.|"
            "Goodbye and good night.|"
            "Goodbye now.|Well, goodbye.|Thanks, bye.|Have a nice day.|Until next time."
        ),
        "Goodbye then.|Okay, bye.",
        "Goodbye, talk to you soon.",
        "goodbye",
    ),
    (
        (
            "How are you?|How are you today?|How do you do?|Are you well?|How is it going?|How are you doing?|"
            "Are you okay?|So, how are you?|How do you feel?|How are things?|Hi, how are you?|How have you been?|"
            "And you, how are you?|"
            "How are you feeling today?"
        ),
        "And how are you?|Hello, how are you?",
        "I am fine, thank you.",
        "fine",
    ),
    (
        (
            "Can you hear me?|Do you hear me?|Are you there?|Hello, can you hear me?|Do you hear what I say?|"
            "Hello, are you there?|Is anybody there?|Can you hear my voice?|Am I loud enough?|Can you understand me?|"
            "Do you understand me?|Hello, is anybody there?|Are you still there?|Testing, can you hear me?"
        ),
        "Are you listening?|Can you hear me now?",
        "Yes, I can hear you.",
        "hear",
    ),
    (
        (
            "Stop.|Stop it.|Please stop.|Be quiet.|Stop talking.|Stop now.|Enough.|That is enough.|Stop please.|"
            "Quiet please.|"
            "Okay, that is enough.|Stop, stop.|Stop it now.|Shut up.|No more, please.|Silence, please.|You can stop."
        ),
        "Okay, stop.|Please be quiet.",
        "Okay, I will stop.",
        "stop",
    ),
    (
        (
            "Are you a robot?|Are you a human?|Are you real?|Are you a machine?|Are you alive?|"
            "Am I talking to a robot?|Is this a real person?|Are you a computer?|Are you a program?|"
            "Am I talking to a human?|Are you human?|"
            "Is this a machine?"
        ),
        "Are you a person?",
        "I am a program, not a person.",
        "program",
    ),
    (
        (
            "Where do you live?|Where are you?|Where do you run?|Where is your home?|Tell me where you live.|"
            "In which place do you live?|"
            "Where do you come from?|Where is your house?|What place are you in?|Where do I find you?"
        ),
        "Where are you from?",
        "I live inside your own machine.",
        "machine",
    ),
    (
        (
            "Do you like music?|Do you like people?|Are you happy?|What makes you happy?|Do you like your work?|"
            "Are you happy today?|"
            "Are you sad?|Do you like me?|Do you enjoy this?|What do you like?|When are you happy?"
        ),
        "Do you feel happy?",
        "I am happy when I can help.",
        "happy",
    ),
    (
        (
            "How many days are in a week?|How many days does a week have?|How many days are there in a week?|"
            "How long is a week?|Count the days of a week.|How many days make a week?|The number of days in a week?|"
            "A week is how many days?"
        ),
        "Tell me how many days a week has.",
        "A week has seven days.",
        "seven",
    ),
    (
        (
            "How many months are in a year?|How many months does a year have?|How many months are there in a year?|"
            "Count the months of a year.|How many months make a year?|The number of months in a year?|"
            "A year is how many months?"
        ),
        "Tell me how many months a year has.",
        "A year has twelve months.",
        "twelve",
    ),
)


def exchange(s: Speaker) -> Turn:
    train, held_out, answer, key = s.random.choice(EXCHANGES)
    return turn("small talk", s.phrase(train, held_out), answer, key)


def tell_name(s: Speaker) -> Turn:
    name = s.random.choice(words.NAMES)
    s.told["name"] = name
    question = s.phrase(
        "My name is {}.|Hello, my name is {}.|I am {}.|Hello, I am {}.|Please call me {}.|Call me {}.|"
        "I am called {}.|Hi, my name is {}.|This is {}.|Hello, this is {} speaking.|You can call me {}.|"
        "Good morning, I am {}.|"
        "People call me {}.|Hi, this is {}.|Hi, I am {}.",
        "Hi, I'm {}.|They call me {}.",
    )
    return turn("names", question.format(name), f"Nice to meet you, {name}.", name)


def ask_name(s: Speaker) -> Turn:
    question = s.phrase(
        "What is my name?|Do you know my name?|Who am I?|Do you remember my name?|Tell me my name.|Say my name.|"
        "How am I called?|Do you know who I am?|So what is my name?|Could you say my name?|Which name did I tell you?|"
        "My name is what?",
        "What's my name?|Can you tell me my name?",
    )
    name = s.told.get("name")
    if name is None:
        return turn("memory", question, "You have not told me your name.", "not told")
    return turn("memory", question, f"Your name is {name}.", name)


def tell_favourite(s: Speaker) -> Turn:
    kind = s.random.choice(list(words.FAVOURITES))
    thing = s.random.choice(words.FAVOURITES[kind])
    s.told[kind] = thing
    question = s.phrase(
        "My favorite {} is {}.|My favorite {} is {}.|Remember, my favorite {} is {}.|Well, my favorite {} is {}.|"
        "By the way, my favorite {} is {}.|Remember that my favorite {} is {}.|For me, the favorite {} is {}.|"
        "I have a favorite {}, it is {}.|I said that my favorite {} is {}.|I tell you, my favorite {} is {}.",
        "I think my favorite {} is {}.|You know, my favorite {} is {}.",
    )
    return turn("favourites", question.format(kind, thing), f"Your favorite {kind} is {thing}. I will remember.", thing)


def ask_favourite(s: Speaker, kind: str | None = None) -> Turn:
    kind = kind or s.random.choice(list(words.FAVOURITES))
    question = s.phrase(
        "What is my favorite {}?|Do you know my favorite {}?|Which is my favorite {}?|Tell me my favorite {}.|"
        "Say what my favorite {} is.|Can you tell me my favorite {}?|Which {} is my favorite?|"
        "Do you still know my favorite {}?|"
        "Which favorite {} did I tell you?|My favorite {} is what?",
        "What's my favorite {}?|Do you remember my favorite {}?",
    )
    thing = s.told.get(kind)
    if thing is None:
        return turn("memory", question.format(kind), f"You have not told me your favorite {kind}.", "not told")
    return turn("memory", question.format(kind), f"Your favorite {kind} is {thing}.", thing)
