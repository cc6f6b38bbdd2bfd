"""The rule for equal words and for right answers.

A recogniser writes what it hears as it likes: digits, contractions, hyphens, one word or two, one of several words that
sound alike. None of that is an error of speech, so it is undone here, but only as far as the expected words say what is
due.

The rule is frozen: `held-out/words.json` has pairs of texts with the errors that it counts, to which more may be added.
Whoever changes what it counts judges the old checkpoints anew.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from ..domain import Turn
from ..domain.words import number

SIGNS = {"+": " plus ", "×": " times ", "*": " times ", "=": " is ", "&": " and "}
# Words that nobody can tell apart by ear, or that are one word spelled in two ways. They count only where the first is
# due.
ALIKE = {
    "two": {"to", "too"},
    "four": {"for"},
    "eight": {"ate"},
    "one": {"won"},
    "okay": {"ok"},
    "kiev": {"kyiv"},
    "baa": {"bah", "ba"},
    "color": {"colour"},
    "favorite": {"favourite"},
    "gray": {"grey"},
    "sarah": {"sara"},
    "anna": {"ana"},
    "clara": {"klara"},
    "bern": {"berne"},
    # The names of letters.
    "b": {"be", "bee"},
    "c": {"see", "sea"},
    "f": {"ef"},
    "g": {"gee"},
    "h": {"aitch"},
    "i": {"eye"},
    "j": {"jay"},
    "k": {"kay"},
    "l": {"el", "ell"},
    "m": {"em"},
    "n": {"en"},
    "o": {"oh"},
    "p": {"pea", "pee"},
    "q": {"cue", "queue"},
    "r": {"are"},
    "t": {"tea", "tee"},
    "u": {"you"},
    "x": {"ex"},
    "y": {"why"},
}
# Contractions, written with an apostrophe, as the words that they stand for. Those with 's only where it cannot be a
# possessive.
WHOLE = {"won't": "will not", "can't": "can not", "cannot": "can not", "let's": "let us", "y'all": "you all"}
ENDINGS = {"n't": " not", "'m": " am", "'re": " are", "'ve": " have", "'ll": " will", "'d": " would"}
IS = "it that what who where when how there here he she".split()
LONGEST_NUMBER = 4  # digits that are read as one number; longer ones are counted out


def words(text: str, due: list[str] | None = None) -> list[str]:
    """A text in lower case words without accents; numbers and contractions spelled out.

    `due`, the words that are expected, decide where a notation is ambiguous: "10-3" is "ten minus three" where "minus"
    is due, "CAT" is "c a t" where single letters are, "1314" is "thirteen fourteen" where these are, and "good bye" is
    "goodbye".
    """
    due = due or []
    for sign, word in SIGNS.items():
        text = text.replace(sign, word)
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)
    text = re.sub(r"(?<=\d)\s*[xX]\s*(?=\d)", " times ", text)
    text = re.sub(r"(?<=\d)\s*[-−–]\s*(?=\d)", " minus " if "minus" in due else " ", text)
    if any(len(word) == 1 and word not in "ai" for word in due):
        text = re.sub(r"\b[A-Z]{2,}\b", lambda found: " ".join(found[0]), text)
    text = "".join(c for c in unicodedata.normalize("NFKD", text.lower()) if not unicodedata.combining(c)).replace(
        "’", "'"
    )
    text = re.sub(r"[a-z]+'[a-z]+|cannot", lambda found: _spelled_out(found[0]), text)
    text = re.sub(r"\d+", lambda found: f" {_number(found[0], due)} ", text).replace("'", "")
    said = re.sub(r"[^a-z0-9]", " ", text).split()
    if "and" not in due:
        said = [word for before, word in itertools.pairwise(["", *said]) if (before, word) != ("hundred", "and")]
    return list(_joined(said, due))


def _spelled_out(contraction: str) -> str:
    """Of one word with an apostrophe; others stay as they are."""
    if contraction in WHOLE:
        return WHOLE[contraction]
    for ending, word in ENDINGS.items():
        if contraction.endswith(ending):
            return contraction.removesuffix(ending) + word
    head, _, tail = contraction.partition("'")
    return f"{head} is" if tail == "s" and head in IS else contraction


def _number(digits: str, due: list[str]) -> str:
    """Digits in words: as they are due if they can be, else as one number, and one by one where no hundred is due."""
    for start in range(len(due)):
        if (end := _read(digits, due, start)) is not None:
            return " ".join(due[start:end])
    if len(digits) < 3 or (len(digits) <= LONGEST_NUMBER and (not due or {"hundred", "thousand"} & set(due))):
        return number(int(digits))
    return " ".join(number(int(digit)) for digit in digits)


def _read(digits: str, due: list[str], start: int) -> int | None:
    """The end of the words that are due from `start` on, if they are numbers that these digits may be."""
    if not digits:
        return start
    for size in range(min(LONGEST_NUMBER, len(digits)), 0, -1):
        head, rest = digits[:size], digits[size:]
        said = number(int(head)).split()
        fits = (size == 1 or head[0] != "0") and due[start : start + len(said)] == said
        if fits and (end := _read(rest, due, start + len(said))) is not None:
            return end
    return None


def _joined(said: list[str], due: list[str]) -> Iterator[str]:
    """Two words that are due as one, and one that is due as two."""
    one, two = set(due), {a + b: (a, b) for a, b in itertools.pairwise(due) if len(a) > 1 or len(b) > 1}
    at = 0
    while at < len(said):
        word, following = said[at], said[at + 1] if at + 1 < len(said) else ""
        if len(word) > 1 and len(following) > 1 and word + following in one and not {word, following} <= one:
            yield word + following
            at += 2
            continue
        if word in two and word not in one:
            yield from two[word]
        else:
            yield word
        at += 1


def same(due: str, heard: str) -> bool:
    """True if a word may stand for the one that is due."""
    return due == heard or heard in ALIKE.get(due, ())


def matches(due: list[str], heard: list[str]) -> bool:
    """True if every word may stand for the one that is due."""
    return len(due) == len(heard) and all(map(same, due, heard))


def right(turn: Turn, text: str) -> bool:
    """True if an answer has its deciding words in their place: at its end or in its middle with the word before it, or
    at its start.

    So "twenty seven" is not right where "seven" is due, and "Tuesday comes after Monday" not where Monday is.
    """
    due, key = words(turn.answer), words(" ".join(turn.key))
    given = words(text, due)
    if due == key:
        return matches(key, given)
    if due[-len(key) :] == key:
        phrase = due[-len(key) - 1 :]
        return matches(phrase, given[-len(phrase) :])
    if due[: len(key)] == key:
        return matches(key, given[: len(key)])
    before = next(at for at in range(len(due)) if due[at + 1 : at + 1 + len(key)] == key)
    phrase = due[before : before + 1 + len(key)]
    return any(matches(phrase, given[at : at + len(phrase)]) for at in range(len(given) - len(phrase) + 1))


def declines(text: str) -> bool:
    """True if an answer says that it does not know."""
    return " do not know " in " " + " ".join(words(text)) + " "


@dataclass(frozen=True)
class Errors:
    """Of some spoken words against their text."""

    wrong: int  # replaced, left out or added
    words: int  # of the text

    def __add__(self, other: Errors) -> Errors:
        return Errors(self.wrong + other.wrong, self.words + other.words)

    @property
    def rate(self) -> float:
        return self.wrong / self.words if self.words else float("nan")


def errors(text: str, heard: str) -> Errors:
    """The least number of words to change that makes what was heard the text."""
    due = words(text)
    got = words(heard, due)
    row = list(range(len(got) + 1))
    for i, word in enumerate(due, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(got, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (not same(word, other)))
    return Errors(row[-1], len(due))
