"""Step `held-out`: what the finished model is judged by, as lists that are committed; no sound.

Writes, the same each time:

`single.json`     questions that stand alone, of every topic inside the domain
`follow-up.json`  pairs of which the second is understood only through the first
`memory.json`     something told, then asked for, sometimes with another turn between
`unknown.json`    questions outside the domain
`voice.json`      the teacher's level and average spectrum, when its packages are there; see `measure_voice`

All in phrasings and voices that training never hears. The lists may grow at their ends and never shrink. A file is
`{"conversations": [...]}`; a conversation has `voice`, `speed` and `pitch` (see `questions.Voice`) and its `turns`. The
sound follows from these: `Held.say`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .domain import Turn, talk, topics, unknown
from .domain.topics import Speaker
from .progress import Progress
from .questions import HELD_OUT_SINCE, HELD_OUT_VOICES, Voice

if TYPE_CHECKING:
    from . import voice

SEED = 20_000_003  # another than those of the sets that training makes
# Single questions of each topic. Not the shares of training, which may be tuned without moving what is judged by.
SINGLES = {
    topics.arithmetic: 23,
    topics.capital: 16,
    topics.neighbour: 13,
    topics.counting: 11,
    topics.colour: 8,
    topics.sound: 8,
    topics.young: 7,
    topics.spelling: 11,
    topics.repeating: 15,
    topics.exchange: 12,
    topics.tell_name: 7,
    topics.tell_favourite: 7,
    topics.ask_name: 6,
    topics.ask_favourite: 6,
}
FOLLOW_UPS, MEMORIES, UNKNOWNS = 30, 30, 40
SINCE = 3  # times fewer conversations by the voices that came to judge later
KINDS = ("single", "follow-up", "memory", "unknown")


@dataclass(frozen=True)
class Held:
    """One held-out conversation."""

    voice: Voice
    turns: tuple[Turn, ...]

    def say(self) -> list[np.ndarray]:
        """Each turn spoken: int16 at 16 kHz."""
        return [self.voice.say(turn.question) for turn in self.turns]


def distinct(count: int, seed: str, voices: tuple[str, ...], make: Callable[[Speaker], list[Turn]]) -> Iterator[Held]:
    """`count` conversations, different ones as long as there are, each by a random one of the voices."""
    r = random.Random(f"{SEED} {seed}")
    made: set[tuple[Turn, ...]] = set()
    for _ in range(count):
        for _ in range(50):
            turns = make(Speaker(r, held_out=True))
            if tuple(turns) not in made:
                break
        made.add(tuple(turns))
        yield Held(Voice.random(r, voices), tuple(turns))


def lists() -> dict[str, list[Held]]:
    """All kinds of conversations: those that were there first, then those that came since."""
    first, since = _lists("", HELD_OUT_VOICES, 1), _lists("since ", HELD_OUT_SINCE, SINCE)
    return {kind: first[kind] + since[kind] for kind in KINDS}


def alone(maker: Callable[[Speaker], Turn]) -> Callable[[Speaker], list[Turn]]:
    """Conversations of the one turn that `maker` makes."""
    return lambda s: [maker(s)]


def _lists(seed: str, voices: tuple[str, ...], fewer: int) -> dict[str, list[Held]]:
    def some(count: int, name: str, maker: Callable[[Speaker], list[Turn]]) -> list[Held]:
        return list(distinct(-(-count // fewer), seed + name, voices, maker))

    singles = [held for maker, count in SINGLES.items() for held in some(count, maker.__name__, alone(maker))]
    random.Random(SEED).shuffle(singles)
    return {
        "single": singles,
        "follow-up": some(FOLLOW_UPS, "follow-up", talk.follow_up),
        "memory": some(MEMORIES, "memory", talk.remember),
        "unknown": some(UNKNOWNS, "unknown", alone(unknown.unknown)),
    }


def make(out: Path, work: Path) -> None:
    """Writes the lists into `out`, and the teacher's measures if its packages are installed. Its sound stays in
    `work/voice`, for the judge to add the teacher's word errors (evaluate/hear.py).
    """
    out.mkdir(parents=True, exist_ok=True)
    made = lists()
    for kind, conversations in made.items():
        write(out / f"{kind}.json", conversations)
        print(f"held-out: {len(conversations)} conversations in {out / f'{kind}.json'}", flush=True)
    try:
        from . import voice

        teacher = voice.Voice()
    except (ImportError, OSError) as error:
        print(f"held-out: {out / 'voice.json'} is left as it is, the teacher is not installed ({error})", flush=True)
        return
    answers = list(dict.fromkeys(turn.answer for kind in KINDS for held in made[kind] for turn in held.turns))
    (out / "voice.json").write_text(json.dumps(measure_voice(teacher, answers, work / "voice"), indent=1) + "\n")


def measure_voice(teacher: voice.Voice, answers: list[str], keep: Path) -> dict[str, object]:
    """Level, average spectrum and energy at frame boundaries of the teacher's speech of these answers.

    Both as it speaks (`natural`) and with locked pitch pulses (`locked`); the codec is taught one of them, see
    teacher.py.
    """
    import torch

    from . import codec, listen
    from . import teacher as targets
    from .config import CODEBOOKS, FRAME
    from .evaluate.sound import measures

    # The codec's sound is a little shorter than its frames. Cut as short, the teacher's has its boundaries at the same
    # places.
    with torch.no_grad():
        missing = 2 * FRAME - codec.Codec().decode(torch.zeros(1, 2, CODEBOOKS, dtype=torch.long)).shape[1]

    progress = Progress("held-out: voice", len(answers))
    natural, locked = [], []
    keep.mkdir(parents=True, exist_ok=True)
    (keep / "texts.json").write_text(json.dumps(answers, indent=0) + "\n")
    for number, answer in enumerate(answers):
        plan, sound = teacher.say(answer)
        said = np.clip(sound * 32767, -32768, 32767).astype(np.int16)
        natural.append(targets.natural(said)[:-missing])
        locked.append(targets.locked(said, plan.pitch.reshape(-1), plan.codes[:, targets.PITCH_BOOK])[:-missing])
        for level, sounds in (("natural", natural), ("locked", locked)):
            listen.save(keep / level / f"{number:02}.wav", sounds[-1])
        progress.step()
    return {"sentences": len(answers), "natural": measures(natural), "locked": measures(locked)}


def write(path: Path, conversations: list[Held]) -> None:
    """One conversation a line, so that a change can be read."""
    lines = []
    for held in conversations:
        turns = [asdict(turn) for turn in held.turns]
        voice = {"voice": held.voice.name, "speed": round(held.voice.speed, 3), "pitch": held.voice.pitch}
        lines.append(json.dumps(voice | {"turns": turns}))
    path.write_text('{"conversations": [\n' + ",\n".join(lines) + "\n]}\n")


def load(path: Path) -> list[Held]:
    """The conversations of a file."""
    loaded = []
    for entry in json.loads(path.read_text())["conversations"]:
        turns = (Turn(t["topic"], t["question"], t["answer"], tuple(t["key"])) for t in entry["turns"])
        loaded.append(Held(Voice(entry["voice"], entry["speed"], entry["pitch"]), tuple(turns)))
    return loaded
