"""Text to the teacher's phonemes: espeak-ng's, in the notation that Kokoro was trained with."""

from __future__ import annotations

import re
import subprocess

MARKS = ",.!?;:"
STRESS = "ˈˌ"
# Kokoro's number of each symbol that English needs.
IDS = {
    ";": 1,
    ":": 2,
    ",": 3,
    ".": 4,
    "!": 5,
    "?": 6,
    " ": 16,
    "A": 24,
    "I": 25,
    "O": 31,
    "Q": 33,
    "S": 35,
    "T": 36,
    "W": 39,
    "Y": 41,
}
IDS |= {
    "ᵊ": 42,
    "a": 43,
    "b": 44,
    "d": 46,
    "e": 47,
    "f": 48,
    "h": 50,
    "i": 51,
    "j": 52,
    "k": 53,
    "l": 54,
    "m": 55,
    "n": 56,
    "o": 57,
}
IDS |= {
    "p": 58,
    "s": 61,
    "t": 62,
    "u": 63,
    "v": 64,
    "w": 65,
    "z": 68,
    "ɑ": 69,
    "ɒ": 71,
    "æ": 72,
    "ɔ": 76,
    "ð": 81,
    "ʤ": 82,
    "ə": 83,
}
IDS |= {
    "ɛ": 86,
    "ɜ": 87,
    "ɡ": 92,
    "ɪ": 102,
    "ŋ": 112,
    "θ": 119,
    "ɹ": 123,
    "ɾ": 125,
    "ʃ": 131,
    "ʧ": 133,
    "ʊ": 135,
    "ʌ": 138,
    "ʒ": 147,
}
IDS |= {"ʔ": 148, "ˈ": 156, "ˌ": 157, "ː": 158, "ᵻ": 177}
# From espeak-ng's notation, in this order; the second list in an American's mouth only.
REPLACED = (
    *(
        ("ʲ", ""),
        ("r", "ɹ"),
        ("x", "k"),
        ("ɬ", "l"),
        ("aɪ", "I"),
        ("aʊ", "W"),
        ("eɪ", "A"),
        ("ɔɪ", "Y"),
        ("oʊ", "O"),
        ("əʊ", "Q"),
    ),
    *(("tʃ", "ʧ"), ("dʒ", "ʤ"), ("ɚ", "əɹ"), ("ɐ", "ə")),
)
REPLACED_AMERICAN = (("oːɹ", "ɔɹ"), ("ɜːɹ", "ɜɹ"), ("ɜː", "ɜɹ"), ("ː", ""))
AMERICAN, BRITISH = "en-us", "en-gb"


def of(text: str, accent: str = AMERICAN) -> str:
    """The symbols of a text, its punctuation among them; each is in `IDS`."""
    parts = [part.strip() for part in re.findall(rf"[^{MARKS}]+|[{MARKS}]", text)]
    clauses = [part for part in parts if part and part not in MARKS]
    # A clause a line, each with an end of its own, so that a line comes back for each.
    command = ["espeak-ng", "-q", "--ipa", "-v", accent, "--stdin"]
    answer = subprocess.run(
        command, input="".join(f"{clause}.\n" for clause in clauses), capture_output=True, text=True, check=True
    )
    lines = answer.stdout.strip().splitlines()
    if len(lines) != len(clauses):
        raise RuntimeError(f"espeak-ng made {len(lines)} clauses of the {len(clauses)} in {text!r}")
    spoken, said = iter(lines), ""
    for part in parts:
        if part in MARKS:
            said += part
        else:
            said += (" " if said else "") + next(spoken).strip()
    for theirs, ours in REPLACED + (REPLACED_AMERICAN if accent == AMERICAN else ()):
        said = said.replace(theirs, ours)
    return "".join(symbol for symbol in said if symbol in IDS)


def segments(symbols: str) -> list[list[int]]:
    """Groups of symbols that last whole codec frames together: a stress mark goes with what it stresses, a space with
    what it follows.
    """
    groups: list[list[int]] = []
    waiting: list[int] = []
    for at, symbol in enumerate(symbols):
        if symbol in STRESS:
            waiting.append(at)
        elif groups and symbol in " ː":
            groups[-1].append(at)
        else:
            groups.append([*waiting, at])
            waiting = []
    if waiting and groups:
        groups[-1] += waiting
    return groups


def name(symbols: str) -> str:
    """Name of a segment: its symbol with its stress; punctuation is silence, "", as is the rest around a sentence."""
    said = symbols.strip(" ː")
    return "" if said in MARKS else said
