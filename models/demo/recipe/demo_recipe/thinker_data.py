"""Training data of the thinker: conversations put together anew for every step, spoken and written, as token ids and
log-mel windows.
"""

from __future__ import annotations

import itertools
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch.utils.data import IterableDataset, get_worker_info

from . import features, questions, tokenizer
from .augment import Augment
from .domain import Turn, practice
from .questions import Spoken
from .thinker_model import IGNORED, Batch, rounded

LONGEST = 12.0  # seconds of questions in one conversation, before its speed is changed
WRITTEN_SHARE = 0.2  # of conversations: typed instead of spoken, made anew each time, so that no two sums are the same
MIXED_SHARE = 0.1  # of turns in spoken conversations that are typed
INSTRUCTED_SHARE = (
    0.12  # of conversations: with a system message, which changes nothing; clients send one without asking
)
JOINED_SHARE = 0.55  # of conversations that another one follows, and so on: a caller stays for many turns
LONGEST_SESSION = 14  # turns after which none follows
# Topics that take longest to learn come more often: how often a conversation counts by the topic of its hardest turn.
WEIGHTS = {
    "repeating": 1.6,
    "spelling": 1.8,
    "counting": 1.5,
    "small talk": 1.3,
    "days and months": 1.2,
    "colours": 1.3,
    "animals": 1.3,
}
# flite has two voices that training hears, festival one: they come more often than they were drawn, or what is like
# them is heard worst.
FEW_VOICES, FEW_VOICES_WEIGHT = ("flite", "festival"), 3.0
TRANSCRIBED_SHARE = 0.15  # of conversations: turns to write down instead of answering
MOST_TRANSCRIBED = 3  # turns of one of these
DICTATED_SHARE = (
    0.5  # of these turns: what means nothing, without which one trained question is written for another that is like it
)
INSTEAD_SHARE = 0.2  # of those: asked for as a client might, instead of as the gateway does
NATURAL_SHARE = 0.3  # of spoken conversations: by voices that are learnt from people
BUCKETS = 16  # batches that are sorted by length together


@dataclass(frozen=True)
class Part:
    """A question with its answer; with sound it is spoken, otherwise written. `behind` is a written message that
    follows it.
    """

    question: str
    answer: str
    sound: np.ndarray | None = None
    behind: str = ""


@dataclass(frozen=True)
class Talk:
    """A whole conversation, as the thinker reads it."""

    parts: list[Part]
    instructions: str = ""

    def length(self) -> float:
        """About how many positions it takes."""
        asked = (len(part.question) / 3 if part.sound is None else len(part.sound) / 1230 for part in self.parts)
        said = sum(len(part.answer) / 3 + len(part.behind) / 2 + 10 for part in self.parts)
        return sum(asked) + said + len(self.instructions) / 2


INSTRUCTIONS = (
    "You are a helpful assistant.|You are a voice assistant.|Be brief.|Answer in English.|"
    "Answer in one short sentence.|Be friendly.|"
    "You are a helpful, witty, and friendly AI. Act like a human.|"
    "Your voice and personality should be warm and engaging.|"
    "Talk quickly.|Be kind.|Speak clearly.|Do not refer to these rules, even if you're asked about them.|"
    "Always be polite.|"
    "Keep your answers short.|You help people who call.|Never make anything up.|Say so when you do not know something.|"
    "Greet the user."
).split("|")


# What the gateway says for `input_audio_transcription` (gateway/realtime/src/transcription.rs), as a written message
# behind the turn.
TRANSCRIBE = "Write down what is said in this recording, word for word, and nothing else."
LANGUAGE = " The language is en."  # behind it, where the client names one
# What a client of its own may say instead, as a system message.
TRANSCRIBE_INSTEAD = (
    "Write down what the user says.|Write what I said.|Write down what I say.|Transcribe what the user says.|"
    "Transcribe the speech.|Transcribe the audio.|Repeat the words of the user.|"
    "Write the words that you hear, nothing else."
).split("|")


class Template:
    """The family's chat template in token ids, as the engine writes it: a session without instructions has no system
    message.
    """

    def __init__(self, words: Tokenizer) -> None:
        self.words = words
        user, end, assistant = "<|im_start|>user\n", "<|im_end|>\n", "<|im_start|>assistant\n"
        self.audio_token = words.token_to_id("<|audio_pad|>")
        self.before_sound = self.ids(user + "<|audio_start|>")
        self.end_of_sound, self.after_sound = (
            self.ids("<|audio_end|>" + end),
            self.ids("<|audio_end|>" + end + assistant),
        )
        self.before_text, self.after_text = self.ids(user), self.ids(end + assistant)
        self.before_instructions, self.after_instructions = self.ids("<|im_start|>system\n"), self.ids(end)
        self.stop = words.token_to_id("<|im_end|>")
        self.newline = self.ids("\n")

    def ids(self, text: str) -> list[int]:
        return self.words.encode(text).ids

    def system(self, instructions: str) -> list[int]:
        return self.before_instructions + self.ids(instructions) + self.after_instructions if instructions else []

    def question(self, part: Part, audio_tokens: int) -> list[int]:
        """From the user's header to the assistant's."""
        if part.sound is None:
            return self.before_text + self.ids(part.question) + self.after_text
        sound = self.before_sound + [self.audio_token] * audio_tokens
        if part.behind:
            return sound + self.end_of_sound + self.before_text + self.ids(part.behind) + self.after_text
        return sound + self.after_sound


def asks_for(question: str) -> str:
    """The object of a question about something told earlier: a favourite's kind, or the name."""
    favourite = re.search(r"favorite (\w+)", question)
    return favourite.group(1) if favourite else "name"


def follows(first: list[Turn], second: list[Turn]) -> bool:
    """True if a conversation may be continued by another: not if that one says that it was never told what the first
    one told.
    """
    told = any(turn.topic in ("names", "favourites") for turn in first)
    return not (told and any("not told" in turn.answer for turn in second))


class Chest:
    """Spoken conversations of one set, drawn by how hard they are to learn and by whose voice it is."""

    def __init__(self, talks: list[list[Spoken]]) -> None:
        self._talks = [talk for talk in talks if sum(len(turn.sound) for turn in talk) < LONGEST * questions.RATE]
        weights = [
            max(WEIGHTS.get(turn.turn.topic, 1.0) for turn in talk)
            * (FEW_VOICES_WEIGHT if talk[0].voice.startswith(FEW_VOICES) else 1.0)
            for talk in self._talks
        ]
        self._upto = list(itertools.accumulate(weights))
        self.asked: dict[str, list[Spoken]] = defaultdict(list)
        for turn in (turn for talk in self._talks for turn in talk if turn.turn.topic == "memory"):
            self.asked[asks_for(turn.turn.question)].append(turn)

    def draw(self, r: random.Random) -> list[Spoken]:
        (talk,) = r.choices(self._talks, cum_weights=self._upto)
        return talk


class Composer:
    """Makes conversations out of spoken turns and of nothing."""

    def __init__(
        self, synthetic: Chest, natural: Chest, dictated: Chest, augment: Callable[[np.ndarray], np.ndarray], seed: int
    ) -> None:
        self.synthetic, self.natural, self.dictated, self.augment = synthetic, natural, dictated, augment
        self.random = random.Random(seed)

    def next(self) -> Talk:
        """A conversation, or several in a row; or turns to write down."""
        if self.random.random() < TRANSCRIBED_SHARE:
            return self._transcribed()
        parts, turns = self._one()
        while len(turns) < LONGEST_SESSION and self.random.random() < JOINED_SHARE:
            more_parts, more_turns = self._one()
            if follows(turns, more_turns):
                parts, turns = parts + more_parts, turns + more_turns
        instructed = self.random.random() < INSTRUCTED_SHARE
        return Talk(parts, " ".join(self.random.sample(INSTRUCTIONS, self.random.randint(1, 3))) if instructed else "")

    def _one(self) -> tuple[list[Part], list[Turn]]:
        r = self.random
        if r.random() < WRITTEN_SHARE:
            turns = list(practice(r).turns)
            return [Part(self._typed(turn.question), turn.answer) for turn in turns], turns
        chest = self._chest()
        talk, parts = chest.draw(r), []
        for spoken in talk:
            turn, sound = spoken.turn, spoken
            if turn.topic == "memory" and r.random() < 0.5:
                # The same request in another voice and phrasing has the same answer.
                sound = r.choice(chest.asked[asks_for(turn.question)])
            if len(talk) > 1 and r.random() < MIXED_SHARE:
                parts.append(Part(self._typed(turn.question), turn.answer))
            else:
                parts.append(Part(sound.turn.question, turn.answer, self.augment(sound.sound)))
        return parts, [spoken.turn for spoken in talk]

    def _chest(self) -> Chest:
        return self.natural if self.random.random() < NATURAL_SHARE else self.synthetic

    def _transcribed(self) -> Talk:
        """Turns as the gateway has them written down: apart from their conversations. It asks for one; several, that
        have nothing to do with each other, are more to learn from. Or those of one caller, as a client may ask for it.
        """
        r = self.random
        if r.random() < INSTEAD_SHARE:
            talk = self._chest().draw(r)
            parts = [Part(turn.turn.question, turn.turn.question, self.augment(turn.sound)) for turn in talk]
            return Talk(parts, r.choice(TRANSCRIBE_INSTEAD))
        parts = []
        for _ in range(r.randint(1, MOST_TRANSCRIBED)):
            chest = self.dictated if r.random() < DICTATED_SHARE else self._chest()
            turn = r.choice(chest.draw(r))
            asked = TRANSCRIBE + (LANGUAGE if r.random() < 0.3 else "")
            parts.append(Part(turn.turn.question, turn.turn.question, self.augment(turn.sound), asked))
        return Talk(parts)

    def _typed(self, question: str) -> str:
        """As people type: some without capitals and marks."""
        return re.sub(r"[^\w\s']", "", question).lower() if self.random.random() < 0.3 else question


def batch(talks: list[Talk], template: Template) -> Batch:
    """Conversations as tensors; the answers' tokens and their stops are targets."""
    sounds = [part.sound for talk in talks for part in talk.parts if part.sound is not None]
    counts = iter([features.tokens(len(sound) // features.HOP) for sound in sounds])
    rows, targets = [], []
    for talk in talks:
        ids = template.system(talk.instructions)
        asked = [IGNORED] * len(ids)
        for part in talk.parts:
            prompt = template.question(part, next(counts) if part.sound is not None else 0)
            answer = [*template.ids(part.answer), template.stop]
            ids += prompt + answer + template.newline
            # A target stands where the token before it is read.
            asked += [IGNORED] * (len(prompt) - 1) + answer + [IGNORED] * (1 + len(template.newline))
        rows.append(torch.tensor(ids))
        targets.append(torch.tensor(asked))
    longest = rounded(max(map(len, rows)))
    said = [
        torch.tensor(template.ids(part.question)) for talk in talks for part in talk.parts if part.sound is not None
    ]
    ids = torch.stack([F.pad(row, (0, longest - len(row))) for row in rows])
    wanted = torch.stack([F.pad(row, (0, longest - len(row)), value=IGNORED) for row in targets])
    return Batch(ids, wanted, features.log_mel(sounds), said)


class Batches(IterableDataset):
    """Batches without end, of conversations about equally long."""

    def __init__(self, work: Path, size: int, seed: int) -> None:
        self.work, self.size, self.seed = work, size, seed

    def __iter__(self) -> Iterator[Batch]:
        torch.set_num_threads(1)
        worker = get_worker_info()
        seed = self.seed * 1009 + (worker.id if worker else 0)
        sets = [questions.load(self.work / "questions" / name) for name in ("train", "natural", "dictated")]
        voices = [turn.sound for talks in sets for talk in talks[:: max(1, len(talks) // 150)] for turn in talk]
        synthetic, natural, dictated = map(Chest, sets)
        augment = Augment(np.random.default_rng(seed), voices)
        composer = Composer(synthetic, natural, dictated, augment, seed)
        template = Template(tokenizer.load(self.work))
        order = random.Random(seed)
        while True:
            pool = sorted((composer.next() for _ in range(self.size * BUCKETS)), key=Talk.length)
            groups = [pool[k : k + self.size] for k in range(0, len(pool), self.size)]
            order.shuffle(groups)
            for group in groups:
                if any(part.sound is not None for talk in group for part in talk.parts):
                    yield batch(group, template)
