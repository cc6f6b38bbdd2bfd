"""`make bench-real`: the published models beside their peers on the same weights, in one run.

    bench.py [--binary FILE] [--rounds N] [--only NAME...]

Peers take turns with us, each at its best settings, and each row's note has the range of both. Writes
target/report/real_speed.json. The machine must be idle. Parts: hearing, writing, voice, answers, turns, callers.
`answers` needs the answers of `make test-real`.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from websockets.exceptions import InvalidStatus

from common import (
    MODEL_RATE,
    ROOT,
    WIRE_RATE,
    WORK,
    Outcome,
    is_right,
    middle,
    pcm,
    questions,
    samples,
    spread,
    word_errors,
)
from peers import Ear, Voice, Writer, models
from server import Caller, Server
from sounds import at_model_rate, question, write_wave

THINK = {"0.5b": "qwen2.5-coder-0.5b", "1.5b": "qwen2.5-coder-1.5b"}
# A text of 103 characters, and one that is as long as an answer's first clause.
SENTENCE = "A river begins as a small stream high in the mountains, and other streams join it on its way down here."
FIRST = "Sure, one moment."
TURN_S = 5
# The silence that ends a turn, and what a caller counts as sound: -45 dBFS.
VAD = {"type": "server_vad", "silence_duration_ms": 200}
SOUND = 10 ** (-45 / 20)
CALLERS = (1, 2, 3, 4)
# Status of a server that takes no further call.
FULL = 503


class Bench:
    """The rows of one run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.lists, self.out = options, questions(), Outcome("real_speed")

    def all(self) -> int:
        """Runs the chosen parts."""
        parts = {
            "hearing": self.hearing,
            "writing": self.writing,
            "voice": self.voice,
            "answers": self.answers,
            "turns": self.turns,
            "callers": self.callers,
        }
        for name in self.options.only or list(parts):
            print(f"bench-real: {name}", flush=True)
            parts[name]()
        return self.out.write()

    def interleaved(self, ours: Callable[[], float], peer: Callable[[], float]) -> tuple[float, float, str]:
        """Medians of both after a warm-up of each, taking turns, and their ranges."""
        ours(), peer()
        pairs = [(ours(), peer()) for _ in range(self.options.rounds)]
        mine, theirs = [one for one, _ in pairs], [other for _, other in pairs]
        return middle(mine), middle(theirs), f"ours {spread(mine)}, peer {spread(theirs)}"

    def hearing(self) -> None:
        """A turn of five seconds: from its commit, and whole."""
        one = self.lists["questions"][3]
        sound = question(one["text"], one["voice"])
        turn = (sound * 3)[: TURN_S * WIRE_RATE * 2]
        path = write_wave(WORK / "turn.wav", pcm(at_model_rate(samples(turn))), MODEL_RATE)
        binary = newest("hearing")
        ears = {threads: Ear(threads) for threads in (1, 2)}
        heard = at_model_rate(samples(turn))

        def ours(*options: str) -> Callable[[], dict]:
            command: list[str | Path] = [binary, models() / "whisper-base", "--given", "en", *options, path]
            environment = os.environ | {"REPARTEE_MODELS": str(models())}
            return lambda: json.loads(
                subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
            )

        def timed(threads: int = 2) -> float:
            begun = time.perf_counter()
            ears[threads].hear_samples(heard)
            return 1e3 * (time.perf_counter() - begun)

        streamed = ours("--weights", "int8")
        ends = [streamed()["final_ms"] for _ in range(self.options.rounds)]
        self.out.row("hear_5s_commit_to_transcript", middle(ends), None, "ms", f"p50; {spread(ends)}; aim 250")
        for name, options, aim in [
            ("hear_5s_whole", ["--weights", "int8", "--at-once"], 2.5),
            ("hear_5s_whole_30s_window", ["--weights", "int8", "--at-once", "--whole"], 1.1),
        ]:
            run = ours(*options)

            def whole(run: Callable[[], dict] = run) -> float:
                found = run()
                return found["before_ms"] + found["final_ms"]

            mine, theirs, note = self.interleaved(whole, timed)
            self.out.row(name, mine, theirs, "ms", f"faster-whisper int8, beam 1, 2 threads; {note}; aim {aim}")

    def writing(self) -> None:
        """Prompt and decoding beside llama.cpp, one thread and two."""
        report = WORK / "text.json"
        for part in THINK.values():
            file = next((models() / part).glob("*.gguf"))
            command: list[str | Path] = [sys.executable, ROOT / "tests/peers/text_models.py", "--speed-only"]
            subprocess.run([*command, "--report", report, file], check=True)
            for row in json.loads(report.read_text())["rows"]:
                note = f"{row['note']}; aim 1.1"
                self.out.row(row["measure"], row["ours"], row["peer"], row["unit"], note, more=True)

    def voice(self) -> None:
        """Kokoro beside onnxruntime on the weights that both have as 8-bit integers, and the words of both by ear."""
        peer, ear = Voice(), Ear()
        with Server(self.options.binary, THINK="smollm2") as server:
            for name, text in [("sentence", SENTENCE), ("first_clause", FIRST)]:
                seconds = len(server.speech(text)) / 2 / WIRE_RATE
                run = peer.prepared(text, "af_heart")
                theirs_s = len(run()) / WIRE_RATE

                def ours(text: str = text, seconds: float = seconds) -> float:
                    begun = time.perf_counter()
                    server.speech(text)
                    return (time.perf_counter() - begun) / seconds

                def theirs(run: Callable[[], np.ndarray] = run, seconds: float = theirs_s) -> float:
                    begun = time.perf_counter()
                    run()
                    return (time.perf_counter() - begun) / seconds

                mine, other, note = self.interleaved(ours, theirs)
                note = f"through the server; {note}; aims .22, 1.4"
                self.out.row(f"voice_rtf_{name}", mine, other, "", note)
            texts = [*self.lists["long"], *(one["text"] for one in self.lists["questions"][:20])]
            ours_heard = [(text, ear.hear_long(server.speech(text))) for text in texts]
        theirs_heard = [(text, ear.hear_long(pcm(peer.speak(text, "af_heart")))) for text in texts]
        mine_e, other_e = word_errors(ours_heard), word_errors(theirs_heard)
        note = f"{mine_e.words} words; onnxruntime has espeak-ng's phonemes; aim: within .01"
        self.out.row("voice_wer", mine_e.rate, other_e.rate, "", note)

    def answers(self) -> None:
        """Answers in text that are right, ours and llama.cpp's on the same transcripts."""
        kept = WORK / "answers.json"
        if not kept.exists():
            print("bench-real: no answers: run `make test-real` first", flush=True)
            return
        answers = json.loads(kept.read_text())
        with Server(self.options.binary) as server, Caller(server.address) as caller:
            instructions = caller.created["instructions"]
        writer = Writer(next((models() / THINK["1.5b"]).glob("*.gguf")))
        ours = sum(is_right(one["key"], one["answer"]) for one in answers)
        theirs = sum(is_right(one["key"], writer.answer(instructions, one["heard"])) for one in answers)
        note = f"of {len(answers)}; llama.cpp, greedy, on the transcripts of `make test-real`; aim: as many"
        self.out.row("answers_right", float(ours), float(theirs), "", note, more=True)

    def turns(self) -> None:
        """From the end of speech to the first sound, with turn detection and speculation."""
        for think in THINK:
            with Server(self.options.binary, THINK=think) as server:
                runs = [self.turn(server.address, index) for index in range(3 + 3 * self.options.rounds)][3:]
            waits = [run["sound"] for run in runs]
            aim = {"0.5b": 1.2, "1.5b": 1.4}[think]
            note = f"p50, websocket, in real time; {spread(waits)}; aim {aim}"
            self.out.row(f"end_of_speech_to_sound_{think}", middle(waits), None, "s", note)
            for step in ("turn_end", "transcript", "text"):
                self.out.row(f"  waterfall_{think}_{step}", middle([run[step] for run in runs]), None, "s", "p50")

    def turn(self, address: str, index: int) -> dict[str, float]:
        """Times of one turn since the end of speech, in seconds."""
        one = self.lists["questions"][index % len(self.lists["questions"])]
        sound = question(one["text"], one["voice"])
        # The frame around a question is silence.
        spoken = sound[: -int(0.45 * WIRE_RATE) * 2]
        with Caller(address, VAD) as caller:
            caller.say(bytes(WIRE_RATE))
            end = caller.say(spoken, pace=1.0)
            threading.Thread(target=caller.keep_silent, daemon=True).start()
            turn = caller.answer(lambda turn: loud(turn.sound))
            now = turn.first
        never = float("nan")
        return {
            "sound": turn.last - end,
            "turn_end": now.get("input_audio_buffer.speech_stopped", never) - end,
            "transcript": now.get("heard", never) - end,
            "text": now.get("response.output_audio_transcript.delta", never) - end,
        }

    def callers(self) -> None:
        """Callers at once, each in real time, at twice the wait of one."""
        with Server(self.options.binary, THINK="0.5b") as server:
            self.turn(server.address, 0)
            for count in CALLERS:
                waits: list[float] = []
                refused: list[int] = []

                def talk(first: int, waits: list[float] = waits, refused: list[int] = refused) -> None:
                    for index in range(first, first + self.options.rounds):
                        try:
                            waits.append(self.turn(server.address, index)["sound"])
                        except InvalidStatus as error:
                            # A full server says so, and is asked again with the next question.
                            if error.response.status_code != FULL:
                                raise
                            refused.append(index)

                threads = [threading.Thread(target=talk, args=(10 * number,)) for number in range(count)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                note = f"p50 to the first sound, 0.5B; {spread(waits)}; {len(refused)} calls refused; aim 2.4 for 3"
                self.out.row(f"callers_{count}", middle(waits), None, "s", note)


def loud(sound: bytes) -> bool:
    """True if the end of a sound is audible."""
    return bool(sound) and float(np.abs(samples(sound[-WIRE_RATE:])).max()) > SOUND


def newest(bench: str) -> Path:
    """Binary of a benchmark that was built last."""
    folder = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/deps"
    found = [path for path in folder.glob(f"{bench}-*") if not path.suffix and os.access(path, os.X_OK)]
    if not found:
        raise SystemExit(f"there is no benchmark {bench}: make bench-real builds it")
    return max(found, key=lambda path: path.stat().st_mtime)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/repartee")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[])
    return Bench(parser.parse_args()).all()


if __name__ == "__main__":
    sys.exit(main())
