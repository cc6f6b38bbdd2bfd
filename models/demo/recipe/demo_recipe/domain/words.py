"""The closed lists of the domain."""

ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def number(n: int) -> str:
    """An integer from -99 to 9999 in words, the American way."""
    if n < 0:
        return "minus " + number(-n)
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10 - 2] + ("" if n % 10 == 0 else " " + ONES[n % 10])
    if n < 1000:
        return ONES[n // 100] + " hundred" + ("" if n % 100 == 0 else " " + number(n % 100))
    return number(n // 1000) + " thousand" + ("" if n % 1000 == 0 else " " + number(n % 1000))


CAPITALS = {
    "France": "Paris",
    "Germany": "Berlin",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Japan": "Tokyo",
    "China": "Beijing",
    "India": "New Delhi",
    "Egypt": "Cairo",
    "Brazil": "Brasilia",
    "Canada": "Ottawa",
    "Australia": "Canberra",
    "Russia": "Moscow",
    "Greece": "Athens",
    "Turkey": "Ankara",
    "Portugal": "Lisbon",
    "Norway": "Oslo",
    "Sweden": "Stockholm",
    "Finland": "Helsinki",
    "Poland": "Warsaw",
    "Austria": "Vienna",
    "Ireland": "Dublin",
    "Kenya": "Nairobi",
    "Mexico": "Mexico City",
    "Argentina": "Buenos Aires",
    "Chile": "Santiago",
    "Peru": "Lima",
    "Cuba": "Havana",
    "Thailand": "Bangkok",
    "Vietnam": "Hanoi",
    "Korea": "Seoul",
    "England": "London",
    "Scotland": "Edinburgh",
    "Denmark": "Copenhagen",
    "Belgium": "Brussels",
    "Hungary": "Budapest",
    "Iceland": "Reykjavik",
    "Switzerland": "Bern",
    "Ukraine": "Kiev",
    "Iran": "Tehran",
    "Iraq": "Baghdad",
}
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
NAMES = (
    "Anna Ben Clara David Emma Frank Grace Henry Iris Jack Kate Liam Mia Noah Olivia Peter Rose Sam Tina Victor "
    "Alice Bob Daniel Lucy Mary Paul Sarah Thomas Laura Martin"
).split()
COLOURS = "red blue green yellow black white orange purple brown pink".split()
THINGS = {  # what has one colour
    "the sky": "blue",
    "grass": "green",
    "snow": "white",
    "a banana": "yellow",
    "blood": "red",
    "coal": "black",
    "an orange": "orange",
    "milk": "white",
    "the sun": "yellow",
    "a tomato": "red",
    "chocolate": "brown",
    "a frog": "green",
}
SOUNDS = {
    "dog": "woof",
    "cat": "meow",
    "cow": "moo",
    "duck": "quack",
    "sheep": "baa",
    "pig": "oink",
    "lion": "roar",
    "bee": "buzz",
}
YOUNG = {
    "dog": "puppy",
    "cat": "kitten",
    "cow": "calf",
    "sheep": "lamb",
    "duck": "duckling",
    "horse": "foal",
    "lion": "cub",
}
FAVOURITES = {  # kinds of things to remember
    "color": COLOURS,
    "animal": "dog cat cow duck sheep pig lion horse rabbit tiger".split(),
    "food": "pizza bread rice soup cake cheese pasta salad".split(),
    "day": DAYS,
}
SPELLED = (
    "cat dog sun book tree fish milk house apple water green bread happy table chair river cloud stone horse train "
    "bird moon star door cake ball rain snow king ship hand road lamp frog nest"
).split()

# The vocabulary of sentences to repeat.
PEOPLE = (
    "the teacher|the doctor|my brother|my sister|the old man|the little girl|a young boy|my mother|my father|"
    "the farmer|the driver|"
    "our friend|the baker|the king|a student|the children|my uncle|the nurse|the captain|the singer"
).split("|")
DEEDS = (
    "likes|found|bought|sold|lost|painted|carried|cleaned|wants|needs|brought|saw|loves|opened|closed|dropped|kept|"
    "moved|watched|made"
).split("|")
OBJECTS = (
    "apple|basket|book|boat|bottle|box|bread|bridge|candle|car|chair|clock|coat|cup|dog|door|drum|fish|flower|garden|"
    "glass|guitar|hat|"
    "horse|house|kitchen|knife|lamp|letter|map|mirror|paper|pen|picture|plate|rabbit|ring|river|shoe|song|spoon|stone|"
    "table|tent|"
    "ticket|tower|train|tree|wagon|window"
).split("|")
KINDS = (
    "small|big|red|blue|green|white|black|yellow|brown|new|old|long|short|heavy|light|round|clean|cold|warm|soft|quiet|"
    "bright|strange|"
    "broken|wooden|golden|empty|simple|fine|strong"
).split("|")
PLACES = (
    "in the garden|at home|on the table|near the river|under the bridge|in the kitchen|at school|by the sea|"
    "in the city|behind the house|"
    "on the road|in the park|at the market|in the forest|on the hill|by the window"
).split("|")
TIMES = (
    "today|yesterday|every day|in the morning|at night|last week|after lunch|on Monday|on Friday|in the evening|"
    "in summer|in winter"
).split("|")
STATES = (
    "The weather is {}.|The water is {}.|The night is {}.|The room is {}.|The road is {}.|This place is {}.|"
    "The house is {}.|My coat is {}."
).split("|")
