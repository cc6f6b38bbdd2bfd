"""`python -m demo_recipe.evaluate.formats`: what a model loses with integer weights, as a table of its card.

`make eval-weights` runs it.

It reads weight_loss.json, which `make weight-loss` writes, and model-FORMAT.json, which `make eval-model` writes at
each `engine.weights`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

from . import table

ROOT = Path(__file__).parents[5]
# As `engine.weights` has them; the first is what the others are held against.
FORMATS = ("bf16", "int8", "mixed", "int4")
MARKS = ("<!-- eval-weights: begin -->", "<!-- eval-weights: end -->")
# Measures of model-FORMAT.json.
HEARD = (
    "right_clean_heard",
    "right_clean_text",
    "word_errors_clean",
    "follow_up_text",
    "memory_text",
    "unknown_text",
    "opinion",
)
# What weight_loss.json calls the sums of all kinds of matrices.
ALL = {"all others": "error of all matrices but experts'", "all experts": "error of experts' matrices"}


@dataclass(frozen=True)
class Found:
    """A report: its date, its machine and its rows by their names."""

    date: str
    machine: str
    rows: dict[str, dict]

    @classmethod
    def read(cls, path: Path) -> Found:
        try:
            report = json.loads(path.read_text())
        except OSError as error:
            raise SystemExit(f"{path}: {error.strerror}: `make eval-weights` writes it") from error
        return cls(report["date"], report["machine"], {row["measure"]: row for row in report["rows"]})


def written(row: dict | None) -> str:
    """A figure with its unit; nothing where there is none."""
    if row is None or row["ours"] is None:
        return ""
    digits = {"%": ".1f", "nats a token": ".4f", "answers": ".0f"}.get(row["unit"], ".3g")
    return f"{row['ours']:{digits}}" + (" %" if row["unit"] == "%" else "")


def kibibytes(row: dict | None) -> int:
    """Size of the matrices of a row."""
    return int(row["note"].partition(" KiB")[0]) if row else 0


def line(label: str, rows: list[dict | None], of: str) -> str:
    return f"| {label} | {' | '.join(map(written, rows))} | {of} |"


def errors(loss: Found) -> list[str]:
    """The size of all matrices, and a line for each kind of them that has an error, with the worst of its tensors."""
    prefix = f"error_{FORMATS[-1]} "
    kinds = [
        measure.removeprefix(prefix) for measure, row in loss.rows.items() if measure.startswith(prefix) and row["ours"]
    ]
    sizes = [sum(kibibytes(loss.rows.get(f"error_{form} {kind}")) for kind in ALL) for form in FORMATS]
    lines = [f"| all matrices | {' | '.join(f'{size / 1024:.1f}' for size in sizes)} | MiB |"]
    for kind in sorted(kinds, key=lambda kind: (kind not in ALL, kind)):
        # Without an error nothing is said: these stay as they are.
        rows = [loss.rows.get(f"error_{form} {kind}") for form in FORMATS]
        rows = [row if row and row["ours"] else None for row in rows]
        share, _, tensor = loss.rows[prefix + kind]["note"].partition("at worst ")[2].rpartition(" ")
        lines.append(line(ALL.get(kind, f"error of `{kind}`"), rows, f"`{FORMATS[-1]}` at worst {share}: `{tensor}`"))
    return lines


def answers(loss: Found) -> list[str]:
    """Loss and answers to the frozen questions."""
    lines = [
        line(
            "loss on the frozen questions' answers", [loss.rows.get(f"loss_{form}") for form in FORMATS], "nats a token"
        )
    ]
    for keys in ("f32", "bf16"):
        rows = [loss.rows.get(f"answers_{form}_kv_{keys}") for form in FORMATS]
        if rows[0]:
            label = f"frozen questions answered, keys and values in {keys}"
            lines.append(line(label, rows, rows[0]["note"].partition(";")[0]))
    return lines


def heard(reports: list[Found]) -> list[str]:
    """The verdicts of the card's other table on the held-out questions, the same questions in every format."""
    lines = []
    for measure in HEARD if reports else ():
        rows = [report.rows.get(measure) for report in reports]
        if rows[0] is None:
            continue
        label, of = [*rows[0]["note"].split("; "), ""][:2]
        for form, row in zip(FORMATS, rows, strict=True):
            if row is None or (measure != "word_errors_clean" and [*row["note"].split("; "), ""][1] != of):
                raise SystemExit(
                    f"model-{form}.json and model-{FORMATS[0]}.json have other questions ({measure}): run `make "
                    "eval-weights`"
                )
        lines.append(line(label, rows, "" if measure in ("word_errors_clean", "opinion") else of))
    return lines


def markdown(loss: Found, reports: list[Found]) -> str:
    head = f"On {loss.date}, {loss.machine}."
    lines = [f"| measure | {' | '.join(f'`{form}`' for form in FORMATS)} | of |", "|---|" + "---|" * (len(FORMATS) + 1)]
    return "\n".join([head, "", *lines, *errors(loss), *answers(loss), *heard(reports)])


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m demo_recipe.evaluate.formats", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--reports", type=Path, default=ROOT / "target/report", help="folder of the reports")
    parser.add_argument(
        "--model", type=Path, default=ROOT / "models/demo", help="folder of the checkpoint, whose README.md is the card"
    )
    options = parser.parse_args()
    loss = Found.read(options.reports / "weight_loss.json")
    evaluated = [options.reports / f"model-{form}.json" for form in FORMATS]
    if not any(path.exists() for path in evaluated):
        print("no model was asked by voice: `make eval-weights` does it", flush=True)
        evaluated = []
    reports = [Found.read(path) for path in evaluated]
    made = markdown(loss, reports)
    print(made)
    path = options.model / "README.md"
    path.write_text(table.card(path.read_text(), made, MARKS))
    print(f"\nwrote the table into {path}")


if __name__ == "__main__":
    main()
