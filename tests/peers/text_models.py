"""Compares models of text in GGUF files with llama.cpp on the same files: `text_models.py FILE...`.

    scripts/setup.sh llama_cpp
    cargo build --release --workspace --examples
    target/tools/python/bin/python tests/peers/text_models.py MODEL.gguf

For each file: the share of 2,000 positions, each after a given text, at which both find the same most likely token, and
where they do not, by how much llama.cpp prefers its own. With --exact both are also compared with the same weights in
single precision, which takes eight bytes of memory for each number of the model. Then the time of a prompt and of a
decoded token beside llama.cpp's, on one thread and on two, each in a process of its own. --speed-only and
--agreement-only leave out the other half. Fails below --least (98) per cent of equal tokens. Writes
target/report/text.json.
"""

import argparse
import ctypes
import json
import pathlib
import subprocess
import sys

import llama_cpp_decode as llama_cpp

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEERS = ROOT / "tests/peers"
LIBRARIES = PEERS / "node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"
# Ids of a window, positions in all, ids of a prompt, decoded tokens, rounds of which the fastest counts.
WINDOW, POSITIONS, PROMPT, TOKENS, ROUNDS = 250, 2000, 128, 64, 3
THREADS = (1, 2)


def ours(arguments: argparse.Namespace, *words: object, text: str = "") -> dict:
    command = [arguments.ours, *words]
    done = subprocess.run([str(word) for word in command], input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{command} failed:\n{done.stderr}")
    return json.loads(done.stdout)


class Peer:
    """A model in llama.cpp."""

    def __init__(self, libraries: pathlib.Path, file: pathlib.Path):
        self.llama = llama_cpp.library(libraries)
        # The library tells much of what it does.
        self.quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
        self.llama.llama_log_set(self.quiet, None)
        for name, result, given in [
            ("llama_free", None, [ctypes.c_void_p]),
            ("llama_model_free", None, [ctypes.c_void_p]),
        ]:
            function = getattr(self.llama, name)
            function.restype, function.argtypes = result, given
        self.llama.llama_backend_init()
        self.model = self.llama.llama_model_load_from_file(str(file).encode(), self.llama.llama_model_default_params())
        if not self.model:
            sys.exit(f"llama.cpp does not load {file}")
        self.vocabulary = self.llama.llama_vocab_n_tokens(self.llama.llama_model_get_vocab(self.model))

    def margins(self, window: list[int], theirs: list[int]) -> list[tuple[int, float]]:
        """The most likely id at each position, and how much its logit is above that of `theirs`."""
        context = self.llama.llama_init_from_model(self.model, self.llama.llama_context_default_params())
        self.llama.llama_set_n_threads(context, 2, 2)
        count = len(window)
        sequence = ctypes.c_int32(0)
        arrays: list[ctypes.Array] = [
            (ctypes.c_int32 * count)(*window),
            (ctypes.c_int32 * count)(*range(count)),
            (ctypes.c_int32 * count)(*[1] * count),
            (ctypes.POINTER(ctypes.c_int32) * count)(*[ctypes.pointer(sequence)] * count),
            (ctypes.c_int8 * count)(*[1] * count),
        ]
        token, pos, n, ids, logits = (ctypes.cast(array, ctypes.c_void_p).value for array in arrays)
        if self.llama.llama_decode(context, llama_cpp.Batch(count, token, None, pos, n, ids, logits)) != 0:
            sys.exit("llama.cpp does not decode")
        found = []
        for position, their in enumerate(theirs):
            row = self.llama.llama_get_logits_ith(context, position)[: self.vocabulary]
            best = max(range(self.vocabulary), key=row.__getitem__)
            found.append((best, row[best] - row[their]))
        self.llama.llama_free(context)
        return found


def agreement(arguments: argparse.Namespace, file: pathlib.Path) -> dict:
    """Row of the share of equal tokens."""
    text = arguments.text.read_text()
    run = ours(arguments, "top", file, 2, WINDOW, POSITIONS, text=text)
    peer = Peer(arguments.libraries, file)
    found = [peer.margins(window, top) for window, top in zip(run["windows"], run["top"], strict=True)]
    mine = [top for window in run["top"] for top in window]
    theirs = [best for window in found for best, _ in window]
    margins = sorted(margin for window in found for _, margin in window if margin > 0)
    share = shared(mine, theirs)
    middle, most = (margins[len(margins) // 2], margins[-1]) if margins else (0.0, 0.0)
    note = f"{len(mine)} positions; elsewhere llama.cpp's own token leads by {middle:.2f} (median), {most:.2f} (most)"
    if arguments.exact:
        exact = ours(arguments, "exact", file, 2, WINDOW, POSITIONS, text=text)
        best = [top for window in exact["top"] for top in window]
        note += f"; with exact products {shared(mine, best):.2f} % of ours, {shared(theirs, best):.2f} % of llama.cpp's"
    return row(f"top_1_{file.stem}", share, None, "%", note)


def shared(left: list[int], right: list[int]) -> float:
    """Per cent of equal entries."""
    return 100 * sum(a == b for a, b in zip(left, right, strict=True)) / len(left)


def speed(arguments: argparse.Namespace, file: pathlib.Path) -> list[dict]:
    """Rows of prompt and decoding, on each number of threads."""
    rows = []
    script = PEERS / "llama_cpp_decode.py"
    for threads in THREADS:
        mine, theirs = [], []
        for _ in range(ROUNDS):
            mine.append(ours(arguments, "decode", file, threads, PROMPT, TOKENS))
            command = [sys.executable, script, arguments.libraries, file, threads, PROMPT, TOKENS]
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True)
            theirs.append(json.loads(done.stdout))
        for measure, key in [("prompt", "prefill_ms_per_token"), ("decode", "ms_per_token")]:
            ms, peer = (min(run[key] for run in runs) for runs in (mine, theirs))
            note = f"{threads} thread(s), fastest of {ROUNDS}; llama.cpp {theirs[0]['version']}"
            rows.append(row(f"{measure}_{file.stem}_{threads}", 1e3 / ms, 1e3 / peer, "tokens/s", note))
    return rows


def row(measure: str, ours: float, peer: float | None, unit: str, note: str) -> dict:
    """Of a measure of which more is better."""
    ratio = None if peer is None else ours / peer
    made = {"measure": measure, "ours": ours, "peer": peer, "ratio": ratio, "unit": unit, "note": note}
    shown = "" if peer is None else f"{peer:>9.1f} {ratio:>6.2f} x"
    print(f"  {measure:<32} {ours:>9.2f} {shown} {unit:<9} {note}", flush=True)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=pathlib.Path, nargs="+")
    parser.add_argument("--ours", type=pathlib.Path, default=ROOT / "target/release/examples/text_model")
    parser.add_argument("--libraries", type=pathlib.Path, default=LIBRARIES)
    parser.add_argument("--text", type=pathlib.Path, default=ROOT / "docs/engine.md")
    parser.add_argument("--report", type=pathlib.Path, default=ROOT / "target/report/text.json")
    parser.add_argument("--least", type=float, default=98.0)
    parser.add_argument("--exact", action="store_true")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--agreement-only", action="store_true")
    only.add_argument("--speed-only", action="store_true")
    arguments = parser.parse_args()
    rows, few = [], []
    for file in arguments.files:
        if not arguments.speed_only:
            found = agreement(arguments, file)
            rows.append(found)
            if found["ours"] < arguments.least:
                few.append(file.stem)
        if not arguments.agreement_only:
            rows += speed(arguments, file)
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    arguments.report.write_text(json.dumps({"name": "text", "rows": rows}, indent=2) + "\n")
    if few:
        sys.exit(f"below {arguments.least} per cent: {', '.join(few)}")


main()
