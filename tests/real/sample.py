"""Records a conversation with the models of `make run-real`: both sides in one track.

    sample.py [--binary FILE] [--seconds N] OUT.opus

The turns are the first frozen follow-ups, in their order, as many as fit. A turn's end is found by the server.
Waits of more than a second are cut to one.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np

from common import ROOT, WIRE_RATE, WORK, pcm, questions, samples
from server import Caller, Server
from sounds import question, write_wave

VAD = {"type": "server_vad", "silence_duration_ms": 300}
BETWEEN_S = 0.6
MOST_WAIT_S = 1.0
BIT_RATE = "32k"


def conversation(address: str, seconds: float) -> np.ndarray:
    """The sound of both sides at 24 kHz."""
    track = np.zeros(0, np.float32)
    with Caller(address, VAD) as caller:
        for pair in questions()["follow_ups"]:
            turns = []
            for one in pair:
                sound = question(one["text"], one["voice"])
                # Turn detection needs the silence behind a turn.
                begun = caller.say(sound + bytes(WIRE_RATE * 2), pace=1.0) - len(sound) / 2 / WIRE_RATE - 1.0
                turn = caller.answer()
                first = turn.first.get("response.output_audio.delta", begun)
                print(f"{one['text']!r}: {turn.transcript!r}, after {first - begun:.2f} s", flush=True)
                wait_s = min(MOST_WAIT_S, max(0.0, first - begun - len(sound) / 2 / WIRE_RATE))
                answer = samples(turn.sound)
                pause = np.zeros(int(BETWEEN_S * WIRE_RATE), np.float32)
                turns += [samples(sound), np.zeros(int(wait_s * WIRE_RATE), np.float32), answer, pause]
                # The answer is played before the caller speaks again.
                caller.say(bytes(2 * (len(answer) + len(pause))), pace=1.0)
            longer = np.concatenate([track, *turns])
            if len(track) and len(longer) > seconds * WIRE_RATE:
                break
            track = longer
    return track


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/repartee")
    parser.add_argument("--seconds", type=float, default=24.0, help="at most, where more than one pair of turns fits")
    options = parser.parse_args()
    with Server(options.binary) as server:
        track = conversation(server.address, options.seconds)
    path = write_wave(WORK / "sample.wav", pcm(track))
    command: list[str | Path] = ["ffmpeg", "-y", "-loglevel", "error", "-i", path, "-c:a", "libopus", "-b:a", BIT_RATE]
    subprocess.run([*command, "-application", "voip", options.out], check=True)
    print(f"{len(track) / WIRE_RATE:.1f} s in {options.out}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
