"""Lines of many alphabets, the same in any language: a linear congruential generator draws from tables.

The tables are fixtures/prompts/lines.json. The test's generator (engine/text/tests/prompts/lines.rs) follows `Lines`
step by step.
"""

import json
from pathlib import Path

TABLES = Path(__file__).parents[1] / "fixtures" / "prompts" / "lines.json"
# First and last character of each alphabet.
ALPHABETS = [
    "az",
    "AZ",
    "\u00c0\u00ff",
    "\u0391\u03c9",
    "\u0410\u044f",
    "\u0531\u0586",
    "\u05d0\u05ea",
    "\u0627\u064a",
    "\u0905\u0939",
    "\u0b85\u0bb9",
    "\u0e01\u0e30",
    "\u10d0\u10f0",
    "\u1200\u1240",
    "\u1e00\u1eff",
    "\u2160\u217f",
    "\u2500\u257f",
    "\u3041\u3096",
    "\u30a1\u30fa",
    "\u4e00\u4f00",
    "\uac00\uad00",
    "\ufb00\ufb06",
    "\uff01\uff5e",
    "\uff66\uff9f",
    "\U0001d400\U0001d454",
    "\U0001f600\U0001f64f",
]
WORDS = [
    "the",
    "The",
    "and",
    "don't",
    "It's",
    "we'LL",
    "hello",
    "world",
    "tokenizer",
    "HTTPServer",
    "camelCase",
    "été",
    "nai\u0308ve",
    "e\u0301",
    "Straße",
    "привет",
    "你好",
    "こんにちは",
    "\uff76\uff9e",
    "\u200b",
    "\u00ad",
    "x\u200dy",
    "👩\u200d👩\u200d👧",
    "1st",
    "3.14",
    "10,000",
    "0x1F",
    "https://a.b/c?d=e&f",
    "a_b-c",
    "...",
    "--",
    "\u2026",
    "“quoted”",
    "(c)",
    "C++",
    "\u2581",
]
TYPED = [
    "<s>",
    "</s>",
    "<unk>",
    "<pad>",
    "<0x41>",
    "<|im_start|>",
    "<|im_end|>",
    "<tool>",
    "</tool>",
    "<tool",
    "\n\n\n",
    "\r\n",
    "    ",
]
MARKS = "!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~"
GAPS = ["  ", "\n", "\t", "", "\u3000", "\u00a0", "\r\n"]


class Lines:
    """The generator."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def draw(self, below: int) -> int:
        """A number below `below`."""
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % below

    def word(self) -> str:
        """One word."""
        kind = self.draw(10)
        if kind < 2:
            return WORDS[self.draw(len(WORDS))]
        if kind == 2:
            return "".join(str(self.draw(10)) for _ in range(1 + self.draw(6)))
        if kind == 3:
            return "".join(MARKS[self.draw(len(MARKS))] for _ in range(1 + self.draw(4)))
        if kind == 4 and self.draw(3) == 0:
            return TYPED[self.draw(len(TYPED))]
        first, last = map(ord, ALPHABETS[self.draw(len(ALPHABETS))])
        return "".join(chr(first + self.draw(last - first + 1)) for _ in range(1 + self.draw(8)))

    def line(self) -> str:
        """One line."""
        line = ""
        for at in range(1 + self.draw(12)):
            if at > 0:
                gap = self.draw(24)
                line += GAPS[gap] if gap < len(GAPS) else " "
            line += self.word()
        ends = self.draw(12)
        if ends == 0:
            line = "  " + line
        elif ends == 1:
            line += " "
        elif ends == 2:
            line += "\n"
        return line


def lines(seed: int, count: int) -> list[str]:
    """Lines of a seed."""
    made = Lines(seed)
    return [made.line() for _ in range(count)]


def write_tables() -> None:
    """Writes the tables for the test."""
    TABLES.parent.mkdir(parents=True, exist_ok=True)
    tables = {"alphabets": ALPHABETS, "words": WORDS, "typed": TYPED, "marks": MARKS, "gaps": GAPS}
    TABLES.write_text(json.dumps(tables, ensure_ascii=True, indent=1) + "\n")
