"""What counts as the same words, and as a right answer.

A recogniser writes what it hears as it likes: digits, hyphens, one of several words that sound alike. None of that is an error of
speech, so it is undone here, but only as far as the expected words say what is due.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from ..domain import Turn
from ..domain.words import number

SIGNS = {"+": " plus ", "×": " times ", "*": " times ", "=": " is "}
# Words that nobody can tell apart by ear, or that are one word spelled in two ways. They count only where the first is due.
ALIKE = {
    "two": {"to", "too"},
    "four": {"for"},
    "eight": {"ate"},
    "one": {"won"},
    "okay": {"ok"},
    "kiev": {"kyiv"},
    "baa": {"bah", "ba"},
    "color": {"colour"},
    "gray": {"grey"},
    "sarah": {"sara"},
    "anna": {"ana"},
    "clara": {"klara"},
    "bern": {"berne"},
    # The names of letters.
    "b": {"be", "bee"},
    "c": {"see", "sea"},
    "g": {"gee"},
    "i": {"eye"},
    "k": {"kay"},
    "o": {"oh"},
    "p": {"pea"},
    "r": {"are"},
    "t": {"tea"},
    "u": {"you"},
    "y": {"why"},
}


def words(text: str, due: list[str] | None = None) -> list[str]:
    """A text in lower case words without accents; numbers spelled out, contractions as one word.

    `due`, the words that are expected, decide where a notation is ambiguous: "10-3" is "ten minus three" where "minus" is due, "CAT" is
    "c a t" where single letters are, and "789" is "seven eight nine" where no hundred is.
    """
    due = due or []
    for sign, word in SIGNS.items():
        text = text.replace(sign, word)
    text = re.sub(r"(?<=\d)\s*[xX]\s*(?=\d)", " times ", text)
    text = re.sub(r"(?<=\d)\s*[-−–]\s*(?=\d)", " minus " if "minus" in due else " ", text)
    if any(len(word) == 1 and word not in "ai" for word in due):
        text = re.sub(r"\b[A-Z]{2,}\b", lambda found: " ".join(found[0]), text)
    text = re.sub(r"\d+", lambda found: f" {_number(found[0], due)} ", text)
    text = "".join(c for c in unicodedata.normalize("NFKD", text.lower()) if not unicodedata.combining(c) and c not in "'’")
    return re.sub(r"[^a-z0-9]", " ", text).split()


def _number(digits: str, due: list[str]) -> str:
    if len(digits) < 3 or (len(digits) < 5 and (not due or "hundred" in due)):
        return number(int(digits))
    return " ".join(number(int(digit)) for digit in digits)


def same(due: str, heard: str) -> bool:
    """Whether a word may stand for the one that is due."""
    return due == heard or heard in ALIKE.get(due, ())


def matches(due: list[str], heard: list[str]) -> bool:
    """Whether all words do."""
    return len(due) == len(heard) and all(map(same, due, heard))


def right(turn: Turn, text: str) -> bool:
    """Whether an answer says what decides where it belongs: at its end or in its middle with the word before it, or at its start.

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
    """Whether an answer says that it does not know."""
    said = " " + " ".join(words(text)) + " "
    return " dont know " in said or " do not know " in said


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
