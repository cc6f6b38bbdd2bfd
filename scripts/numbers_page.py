#!/usr/bin/env python3
"""Writes the tables of docs/numbers.md out of the reports of `make bench` and its like.

Usage: numbers_page.py REPORTS PAGE    The part of PAGE between its two marks is replaced.
"""

import json
import sys
from pathlib import Path

BEGIN, END = "<!-- reports -->", "<!-- end of reports -->"
# Reports that a reader can use; the others have hundreds of rows for developers.
NAMES = ["first_path", "engine", "families", "real", "real_speed", "hostile", "load", "turns", "interruptions"]


def number(value: float | None) -> str:
    """Three significant digits, without an exponent."""
    if value is None:
        return ""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f}" if abs(value) >= 1 or value == 0 else f"{value:.3g}"


def table(name: str, report: dict) -> str:
    lines = [
        f"### {name}: {report['date']}, {report['machine']}",
        "",
        "| measure | ours | peer | ratio | unit | note |",
        "|---|---|---|---|---|---|",
    ]
    for row in report["rows"]:
        figures = " | ".join(number(row[field]) for field in ["ours", "peer", "ratio"])
        # A bar would end the cell.
        note = str(row["note"]).replace("|", "/")
        lines.append(f"| {row['measure']} | {figures} | {row['unit']} | {note} |")
    return "\n".join(lines)


def main(reports: Path, page: Path) -> None:
    text = page.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    found = [(name, reports / f"{name}.json") for name in NAMES]
    tables = [table(name, json.loads(path.read_text())) for name, path in found if path.exists()]
    if not tables:
        sys.exit(f"{reports} has no report: run `make bench` first")
    page.write_text(before + "\n\n".join([BEGIN, *tables, END]) + after)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
