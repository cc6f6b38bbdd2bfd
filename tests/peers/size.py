"""Adds peers to target/report/size.json: `size.py REPARTEE CONFIG REPORT --layers N`.

REPARTEE is our binary, CONFIG the folder of a published configuration (models/dimensions), REPORT what `repartee bench
size` wrote. Decoding of CONFIG's thinker, cut to N layers, is timed by turns of ours and of llama.cpp, each with random
weights and in a process of its own: int4 beside q4_0 and int8 beside q8_0, all of which have 32 numbers a scale of 16
bits, on one thread and on two. The least of the rounds counts: others may use the machine. What is compared is bytes of
weights a second, as the two keep routers in other formats.

--answers FILE adds the rows of another report: those of the demo's whole answers.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence

import random_gguf

HERE = pathlib.Path(__file__).parent
LIBRARIES = HERE / "node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"
# Ours and llama.cpp's.
FORMATS = {"int4": "q4_0", "int8": "q8_0"}
THREADS = (1, 2)
# A prompt as long as ten seconds of speech, and tokens after it.
PROMPT, TOKENS = 130, 64


def ours(arguments: argparse.Namespace, weights: str, threads: int, folder: pathlib.Path) -> tuple[float, float]:
    """Milliseconds and megabytes of weights for each decoded token."""
    report = folder / "ours.json"
    command = [arguments.repartee, "bench", "size", "--synthetic-weights", arguments.config, "--report", report]
    command += ["--layers", arguments.layers, "--routing", "uniform", "--tokens", TOKENS, "--sound", TOKENS / 12.5]
    for setting in [f"weights={weights}", f"threads={threads}", "session_tokens=1024"]:
        command += ["--set", f"engine.{setting}"]
    run([str(word) for word in command])
    rows = {row["measure"]: row["ours"] for row in json.loads(report.read_text())["rows"]}
    return rows[f"thinker_decode_{weights}"], rows[f"thinker_decode_{weights}_reads"]


def llama_cpp(file: pathlib.Path, threads: int) -> dict:
    script = HERE / "llama_cpp_decode.py"
    return json.loads(run([sys.executable, script, LIBRARIES, file, str(threads), str(PROMPT), str(TOKENS)]))


def run(command: Sequence[str | pathlib.Path]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def decoding(arguments: argparse.Namespace) -> Iterator[dict]:
    """Rows of decoding beside llama.cpp."""
    dimensions = random_gguf.Dimensions.of(arguments.config / "config.json", arguments.layers)
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as scratch:
        folder = pathlib.Path(scratch)
        for weights, form in FORMATS.items():
            file = folder / "peer.gguf"
            random_gguf.write(file, dimensions, form)
            theirs_mb = dimensions.bytes_per_token(form) / 1e6
            for threads in THREADS:
                rounds = [
                    (ours(arguments, weights, threads, folder), llama_cpp(file, threads))
                    for _ in range(arguments.rounds)
                ]
                (ms, mb) = min(ours for ours, _ in rounds)
                theirs = min((theirs for _, theirs in rounds), key=lambda theirs: theirs["ms_per_token"])
                theirs_ms = theirs["ms_per_token"]
                note = (
                    f"weights read while decoding, {dimensions.layers} layers and the head, {threads} thread(s); ours "
                    f"{ms:.2f} ms and "
                    f"{mb:.0f} MB a token, llama.cpp {theirs['version']} ({form}) {theirs_ms:.2f} ms and "
                    f"{theirs_mb:.0f} MB: "
                    f"{1e3 / ms:.1f} and {1e3 / theirs_ms:.1f} tokens a second; least of {arguments.rounds} rounds"
                )
                yield row(
                    f"thinker_decode_{weights}_vs_llama_cpp_{threads}", mb / ms, theirs_mb / theirs_ms, "GB/s", note
                )
            file.unlink()


def row(measure: str, ours: float, peer: float, unit: str, note: str) -> dict:
    """Of a measure of which more is better."""
    return {"measure": measure, "ours": ours, "peer": peer, "ratio": ours / peer, "unit": unit, "note": note}


def show(row: dict) -> None:
    peer = "" if row["peer"] is None else f"{row['peer']:.2f}"
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f} x"
    print(f"  {row['measure']:<44} {row['ours']:>9.2f} {peer:>8} {row['unit']:<7} {ratio:>7} {row['note']}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repartee", type=pathlib.Path)
    parser.add_argument("config", type=pathlib.Path)
    parser.add_argument("report", type=pathlib.Path)
    parser.add_argument(
        "--layers", type=int, default=8, help="of the thinker; memory and disk: 0.7 GB each (default: 8)"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--answers", type=pathlib.Path)
    parser.add_argument("--scratch", type=pathlib.Path, default=pathlib.Path("target"), help="folder for GGUF files")
    arguments = parser.parse_args()
    os.environ.pop("REPARTEE_CONFIG", None)
    rows = []
    if arguments.answers and arguments.answers.exists():
        rows += json.loads(arguments.answers.read_text())["rows"]
    for each in rows:
        show(each)
    if LIBRARIES.exists():
        for each in decoding(arguments):
            show(each)
            rows.append(each)
    else:
        print("no llama.cpp: its prebuilt package is for Linux on x86-64", file=sys.stderr)
    report = json.loads(arguments.report.read_text())
    named = {row["measure"] for row in rows}
    report["rows"] = [row for row in report["rows"] if row["measure"] not in named] + rows
    arguments.report.write_text(json.dumps(report, indent=2) + "\n")


main()
