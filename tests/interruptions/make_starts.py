"""Makes the judged starts: who interrupts, and who only listens (see README.md).

    scripts/setup.sh speech interruptions
    target/tools/python/bin/python tests/interruptions/make_starts.py

Each voice of Kokoro that no training hears says backchannels, commands and sentences; coughs, throat clearing, breaths
and laughs are synthesised from seeds. `starts.json` has the place of each start in the voice's Opus file. The set was
made once, before any training, and is not chosen by what a detector makes of it.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "models/interruptions/recipe"))

from demo_recipe import phonemes  # noqa: E402
from interruptions_recipe import noises, people, voices, words  # noqa: E402

RATE = voices.RATE
PER_MS = RATE // 1000
GAP = RATE // 4
LONGEST = RATE * 8 // 5  # of a sentence: what comes behind decides nothing
# Numbers of coughs and the like, of seeds that training does not use.
NOISES = 6
SEEDS = 900_000
SENTENCES = """Sorry, can I ask something about that?|What does that cost in total?|Yeah, but I wanted to know about Sunday.
Okay, and what about the other one?|No, that is not the address I gave you.|Actually, let me change the date.
I already have one of those.|Can you repeat the last part?|Right, so which train should I take?|My name is Jonathan, not John.
Excuse me, I think that is wrong.|How long does it take?|Please send it to my office.|We moved to Leeds last year.
Uh, could you speak a little slower?|The second one sounds better to me.|Mm, I would rather go by bus.|Where exactly is that?
Tell me about the weather instead.|You said Tuesday, I need Thursday.|Yes, book it for four people.|Is there anything cheaper?
Hello, are you still there?|Oh, I forgot to mention my card number."""
# Begins that sound like a backchannel.
LIKE_BACKCHANNELS = ("jˈɛh,", "ɹˈIt,", "ˈʌ,", "jˈɛs,", "OkˈA,", "ˈQ,", "sˈi,", "wˈi,")
FOREIGN = {
    "es": "kwˈanto kwˈesta esˈo|kjˈeɾo ablˈaɾ kon ˌuna peɾsˈona|sˈi, pˈeɾo maɲˈana no pwˈedo",
    "fr": "kɔ̃bjˈɛ̃ sa kˈut|ʒə vudʁˈɛ paʁlˈe a kɛlkˈœ̃|wˈi, mɛ ʒə nə pˈø pa dəmˈɛ̃",
    "it": "kwˈanto kˈosta|voʎːo paɾlˈaɾe kon kwalkˈuno|sˈi, ma domˈani non pˈosːo",
    "ja": "soɾˈewa ˈikɯɾa desɯka|ʨiɡˈaɯ hˈito to hanaʃitˈai desɯ",
    "zh": "tʂˈɤ↘kə twˈo→ʂau↓ʨʰjˈɛn↗|wˈo↓ ɕjˈaŋ↓ wˈən↘ ji↗kə wˈən↘tʰi↗",
    "pt": "kwˈɐ̃tʊ kˈustə ˈisʊ|eʊ kˈɛɾʊ falˈaɾ kõ ˈoʊtɾə pesˈoə",
    "hi": "jˈɛh kˈɪtneː kaː hˈɛː|mˈʊʤʰeː kˈʊʧʰ ˈɔːɾ pˈuːʧʰnaː hˈɛː",
}


def speeds(count: int, seed: int) -> np.ndarray:
    """Speeds of `count` starts: people say a backchannel faster than a voice that reads."""
    return np.random.default_rng([3, seed]).uniform(0.95, 1.5, count).round(2)


def said(voice: str, kind: str, symbols: str, speed: float) -> dict:
    return {"voice": voice, "kind": kind, "symbols": symbols, "speed": float(speed)}


def wanted() -> Iterator[dict]:
    """Starts of all voices."""
    sentences = SENTENCES.replace("\n", "|").split("|")
    for language, names in words.JUDGED.items():
        for number, voice in enumerate(names):
            listed = [
                ("backchannel", words.listed(words.BACKCHANNELS, language)),
                ("command", words.listed(words.COMMANDS, language)),
            ]
            if language == "en":
                accent = phonemes.BRITISH if voice.startswith("b") else phonemes.AMERICAN
                texts = sentences[number :: len(names)]
                listed.append(("sentence", [words.symbols(phonemes.of(text, accent)) for text in texts]))
            else:
                listed.append(("sentence", [words.symbols(text) for text in FOREIGN[language].split("|")]))
            for kind, every in listed:
                # Of the long lists of English each voice says two thirds.
                chosen = [one for at, one in enumerate(every) if kind == "sentence" or (at + number) % 3]
                for symbols, speed in zip(chosen, speeds(len(chosen), sum(map(ord, voice + kind))), strict=True):
                    end = "" if symbols[-1] in ".?" else "!" if kind == "command" else "."
                    named = "backchannel and sentence" if symbols.startswith(LIKE_BACKCHANNELS) else kind
                    yield said(voice, named, symbols + end, speed if kind != "sentence" else min(speed, 1.2))


def whole(sound: np.ndarray) -> np.ndarray:
    """Sound of whole milliseconds, which places are counted in."""
    return sound[: len(sound) // PER_MS * PER_MS]


def write_opus(path: Path, sound: np.ndarray) -> None:
    path.parent.mkdir(exist_ok=True)
    with av.open(str(path), "w", format="ogg") as container:
        stream = container.add_stream("libopus", rate=RATE, layout="mono", options={"application": "voip"})
        stream.bit_rate = 20_000
        samples = np.round(np.clip(sound, -1, 1) * 32767).astype(np.int16)[None]
        frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
        frame.sample_rate = RATE
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def main() -> None:
    groups: dict[str, list[tuple[dict, np.ndarray]]] = {}
    for start in wanted():
        sound = whole(voices.say(start["symbols"], start["voice"], start["speed"])[:LONGEST])
        language = next(language for language, names in words.JUDGED.items() if start["voice"] in names)
        groups.setdefault(start["voice"], []).append(({"language": language, **start}, sound))
    for kind in noises.KINDS:
        for seed in range(SEEDS, SEEDS + NOISES):
            listed = {"language": "none", "voice": "synthesised", "kind": kind, "seed": seed}
            groups.setdefault("synthesised", []).append((listed, whole(noises.noise(kind, seed)[:LONGEST])))
    starts = []
    for voice, sounds in groups.items():
        parts, at = [], GAP
        for start, sound in sounds:
            place = {"file": f"starts/{voice}.opus", "at_ms": at // PER_MS, "ms": len(sound) // PER_MS}
            starts.append(start | place)
            parts += [np.zeros(GAP, np.float32), sound]
            at += len(sound) + GAP
        write_opus(HERE / f"starts/{voice}.opus", np.concatenate([*parts, np.zeros(GAP, np.float32)]))
    for path, kind in people.paths(people.JUDGED):
        name = "laugh or cough" if kind == "neither" else kind
        source = str(path.relative_to(HERE.parents[1]))
        starts.append({"language": "people", "voice": path.parent.name, "kind": name, "file": f"../../{source}"})
    lines = ",\n ".join(json.dumps(start, ensure_ascii=False) for start in starts)
    (HERE / "starts.json").write_text(f"[\n {lines}\n]\n")


if __name__ == "__main__":
    main()
