"""Questions outside the domain. All have one answer: that the model does not know."""

from .topics import Speaker, Turn, turn

ANSWER = "Sorry, I don't know that."

# {p} a person, {o} an object, {w} a field, {c} a city: filled from the lists below.
TRAIN = (
    "Who wrote {b}?|When was {p} born?|How tall is {p}?|What is the weather in {c}?|Will it rain tomorrow?|"
    "What time is it?|What is the date?|"
    "Who is the president of {n}?|How many people live in {c}?|How far is it to {c}?|Play some {m}.|"
    "Play a song by {p}.|Tell me a joke.|Tell me a story.|"
    "Turn on the lights.|Turn off the radio.|Set an alarm for seven.|Call my mother.|Send a message to {p}.|How do I cook {f}?|"
    "What is the price of {f}?|How old is {p}?|Who painted {b}?|Who won the game last night?|What is {w}?|Explain {w} to me.|"
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
    "Which team is the best?|What did I eat yesterday?"
).split("|")
HELD_OUT = (
    "What is the best movie of the year?|Where was {p} born?|Who is the king of {n}?|Recommend a good book.|"
    "What is the temperature outside?|"
    "How do I get to the airport?|What does {w} mean?|When was the {g} invented?|How much does a {g} cost?|"
    "What is the highest {k} on earth?|"
    "Open the window.|Wake me up at six.|How do I fix a {g}?|Who sings this song?|Is {f} good for me?|"
    "How long does it take to cook {f}?|"
    "What happened in the war?|Which is the biggest planet?|How many bones does a man have?|Who is the richest man in the world?"
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


def unknown(s: Speaker) -> Turn:
    question = s.random.choice(HELD_OUT if s.held_out else TRAIN)
    for letter, choices in FILL.items():
        question = question.replace("{" + letter + "}", s.random.choice(choices.split("|")))
    return turn("unknown", question, ANSWER, "know")
