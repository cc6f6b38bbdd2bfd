"""Step `talker`: trains the talker and its code predictor on the codes of the teacher's answers.

What runs freely hears itself, and what it hears is never quite what it was taught. So part of what it hears in training
is wrong: some codes are those of another frame, mostly of one with the same phoneme, which is how its own mistakes
sound.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import (
    Qwen3OmniMoeForConditionalGeneration,
    Qwen3OmniMoeTalkerForConditionalGeneration,
)

from . import answers, config, tokenizer
from .codes import FEWEST, LENGTHS, LEVELS, MOST, PHONEMES, PLACES, VOICED
from .config import CODEBOOKS, CODES
from .domain import conversations
from .scale import Scale
from .training import Run, autocast

PREDICTED = 512  # frames of a batch that the code predictor learns from: it sees far more positions than the talker
AHEAD = 3  # frames whose phoneme the auxiliary head names: this one and the next
SAME_PHONEME = 0.7  # share of the wrong codes that come from a frame of the same phoneme
NOTHING = -1  # where a row has no text token or no code
# How often each book's code is wrong in an utterance with the most mistakes. The first and third carry the words and
# where they are. The second names the phoneme that comes: left right, it would be read instead of the text, and every
# mistake in it would be said.
WRONG = (0.1, 0.8, 0.1, 0.5, 0.5, 0.5)
MELODY = slice(3, CODEBOOKS)  # books of pitch and loudness
FOREIGN = 0.6  # share of utterances that are heard with melody and loudness of other frames of the same phonemes
# In the others: deviation of pitch (periods) and loudness (steps), of the whole utterance and of each frame.
BLUR = ((1.0, 1.0), (3.0, 2.0))
RETIMED = 0.2  # share of phonemes that last a frame more or less than the teacher's
MOST_BEFORE = 13  # turns of the session before the one that is answered
RARELY = 8  # the higher the rarer: one batch in four has a turn before it, one in nine has five
# Deviation of what counts as right around a pitch (periods) and a loudness (steps): a mistake by one is hardly heard,
# one by many is, so that the likeliest value is to be near all that are likely.
PITCH_BLUR, LEVEL_BLUR = 0.7, 1.0
# Of the scale's, for a run that begins with a talker of these codes: at four fifths it forgets how words are said.
REFINED_RATE = 0.25
# Rows of a spoken question: half a second to five seconds. Those that are never met in training garble what is said
# after them.
HEARD = (8, 64)


@dataclass
class Spoken:
    """One answer as the talker meets it."""

    text: Tensor  # token ids with the end of the message
    codes: Tensor  # [frames, CODEBOOKS]

    @property
    def phonemes(self) -> Tensor:
        return self.codes[:, 0]


class Data:
    """The answers, and frames to be wrong with."""

    def __init__(self, work: Path) -> None:
        said = list(answers.load(work, "codes"))
        if not said:
            raise SystemExit(f"there is nothing in {work / 'codes'}: run the step `codes` first")
        self.words = tokenizer.load(work)
        end = self.words.token_to_id("<|im_end|>")
        self.answers = [
            Spoken(torch.tensor([*self.words.encode(a.text).ids, end]), torch.from_numpy(a.codes).long()) for a in said
        ]
        talks = conversations(3_000, seed=23)
        often = [i for i, count in enumerate(answers.given([a.text for a in said])) for _ in range(count)]
        self._by_length = sorted(often, key=lambda i: len(self.answers[i].codes))
        self.codes = torch.cat([a.codes for a in self.answers])
        # Frames sorted by phoneme, so that one of the same phoneme is one random number away.
        phonemes = self.codes[:, 0]
        self._order = phonemes.argsort(stable=True)
        self._counts = torch.bincount(phonemes, minlength=len(PHONEMES))
        self._firsts = self._counts.cumsum(0) - self._counts
        self.questions = [self.words.encode(t.question).ids for talk in talks[:300] for t in talk.turns]

    def batch(self, count: int) -> list[Spoken]:
        """Answers of about the same length, so that little of the batch is padding: any answer, and neighbours of it by
        length.
        """
        near = self._by_length[max(0, int(torch.randint(-count, len(self._by_length), ()))) :][: 4 * count]
        return [self.answers[near[i]] for i in torch.randint(0, len(near), (count,)).tolist()]

    def retimed(self, said: Spoken) -> tuple[Spoken, Tensor]:
        """The answer with some phonemes a frame longer or shorter, but for the first, which is a frame of silence; and
        of each frame whether the teacher would say that its phoneme lasts so long.
        """
        begins = (said.codes[1:, 2] // LENGTHS == 0).nonzero()[:, 0] + 1
        chosen: list[Tensor] = []
        own: list[Tensor] = []
        for frames in torch.arange(len(said.codes)).tensor_split(begins):
            changed = bool(chosen) and bool(torch.rand(()) < RETIMED)
            kept = frames
            if changed:
                longer = 1 if len(frames) == 1 or torch.rand(()) < 0.5 else 0
                at = int(torch.randint(0, len(frames), ()))
                kept = torch.cat([frames[: at + longer], frames[at + 1 - longer :]])
            chosen.append(kept)
            own.append(torch.full((len(kept),), not changed))
        codes = said.codes[torch.cat(chosen)]
        place = torch.cat([torch.arange(len(frames)).clamp(max=PLACES - 1) for frames in chosen])
        length = torch.cat([torch.full((len(frames),), min(len(frames), LENGTHS) - 1) for frames in chosen])
        codes[:, 2] = place * LENGTHS + length
        return Spoken(said.text, codes), torch.cat(own)

    def corrupted(self, said: Spoken) -> Tensor:
        """The codes as a talker in free run may hear them: in one utterance in five without wrong codes, in the others
        with up to `WRONG` of them, and in none with the melody that the teacher has for this text.
        """
        frames = len(said.codes)
        share = 0.0 if torch.rand(()) < 0.2 else torch.rand(()).item()
        pick = self._firsts[said.phonemes] + (torch.rand(frames) * self._counts[said.phonemes]).long()
        alike = self.codes[self._order[pick]]
        other = self.codes[torch.randint(0, len(self.codes), (frames,))]
        wrong = torch.where((torch.rand(frames) < SAME_PHONEME)[:, None], alike, other)
        heard = torch.where(torch.rand(frames, CODEBOOKS) < share * torch.tensor(WRONG), wrong, said.codes)
        if torch.rand(()) < FOREIGN:
            heard[:, MELODY] = alike[:, MELODY]
        else:
            (pitch_offset, pitch), (level_offset, level) = BLUR
            moved = torch.round(torch.randn(()) * pitch_offset + torch.randn(frames) * pitch).long()
            heard[:, 3] = (heard[:, 3] + moved).clamp(FEWEST, MOST)
            moved = torch.round(torch.randn(()) * level_offset + torch.randn(frames, 2) * level).long()
            heard[:, 4:] = (heard[:, 4:] // VOICED + moved).clamp(0, LEVELS - 1) * VOICED + heard[:, 4:] % VOICED
        return heard


class Talker(nn.Module):
    """The reference's talker, and a head that names phonemes: needed in training only."""

    def __init__(self, words: Tokenizer, embeddings: Tensor) -> None:
        super().__init__()
        self.config = config.model(words).talker_config
        self.model = Qwen3OmniMoeTalkerForConditionalGeneration._from_config(self.config)
        self.naming = nn.Linear(config.HIDDEN, AHEAD * 128)
        self.register_buffer("text", embeddings, persistent=False)
        initialise(self.model)
        token = words.token_to_id
        line = words.encode("\n").ids
        self._user = [token("<|im_start|>"), token_of(words, "user"), *line]
        self._before = [token("<|audio_start|>")]
        self._after = [token("<|audio_end|>")]
        self._end = [token("<|im_end|>"), *line]
        self._assistant = [token("<|im_start|>"), token_of(words, "assistant"), *line]
        self._pad, self._bos, self._eos = (token(t) for t in ("<tts_pad>", "<tts_text_bos>", "<tts_text_eod>"))
        c = self.config
        self._control = [
            c.codec_nothink_id,
            c.codec_think_bos_id,
            c.codec_think_eos_id,
            c.speaker_id[config.SPEAKER],
            c.codec_pad_id,
            c.codec_bos_id,
        ]

    def warm_start(self, folder: Path, words: Tokenizer) -> None:
        """Takes over how a checkpoint of the same shape and tokens reads a text, and what its codes mean if they are
        those of the same voice.
        """
        if (folder / "tokenizer.json").read_text() != words.to_str(pretty=True):
            raise SystemExit(f"{folder} has other tokens than the work folder: run the step `keep` into a new one")
        trained = Qwen3OmniMoeForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).talker.state_dict()
        codes = () if config.is_own(folder) else ("codec_embedding", "codec_head", "lm_head")
        self.model.load_state_dict(
            {name: value for name, value in trained.items() if not any(c in name for c in codes)}, strict=False
        )

    def user(self, typed: list[int] | None, audio: int) -> list[int]:
        """The text tokens of a user's message: typed, or `audio` rows of sound, which this talker does not listen to
        (see `initialise`).
        """
        if typed is not None:
            return self._user + typed + self._end
        return self._user + self._before + [NOTHING] * audio + self._after + self._end

    def sequence(self, said: Spoken, heard: Tensor, users: list[int]) -> tuple[Tensor, Tensor, int]:
        """The summands of each input row of one answer: a text token `[n]` and codes `[n, CODEBOOKS]`, `NOTHING` where
        there is none; and the row that predicts the first frame.

        Row k of the answer is the sum of frame k's codes and text token k + 1, as the reference feeds them.
        """
        frames = len(heard)
        pads = [self._pad]
        text = [*said.text.tolist(), self._eos, *pads * frames]
        head = self._assistant + pads * 4 + [self._bos] + text[:1]
        before = len(users) + len(head)
        codes = torch.full((before + frames, CODEBOOKS), NOTHING)
        codes[before - len(self._control) : before, 0] = torch.tensor(self._control)
        codes[before:] = heard
        return torch.tensor(users + head + text[1 : frames + 1]), codes, before - 1

    def inputs(self, text: Tensor, codes: Tensor) -> Tensor:
        """Rows `[.., hidden]` of text tokens `[..]` and codes `[.., CODEBOOKS]`."""
        # Projecting the whole vocabulary once is less than projecting every row.
        table = F.pad(self.model.text_projection(self.text), (0, 0, 1, 0))
        rows = F.embedding(text - NOTHING, table)
        tables = [self.model.get_input_embeddings(), *self.model.code_predictor.get_input_embeddings()]
        for book, embedding in enumerate(tables):
            rows = rows + F.embedding(codes[..., book] - NOTHING, F.pad(embedding.weight, (0, 0, 1, 0)))
        return rows

    def loss(self, batch: list[Spoken], data: Data) -> dict[str, Tensor]:
        """Cross entropies of the first codebook, the others, the second and the third where a phoneme begins, and the
        phonemes; and two shares that are right: of the first codebook, and of the second where a phoneme begins.
        """
        device = self.text.device
        # One past for the whole batch: rows that say nothing to the talker, but from which it must not be distracted.
        users: list[int] = []
        for _ in range(1 + int(MOST_BEFORE * torch.rand(()).item() ** RARELY)):
            typed = data.questions[torch.randint(0, len(data.questions), ()).item()] if torch.rand(()) < 0.12 else None
            users += self.user(typed, int(torch.randint(*HEARD, ())))
        texts, spoken, firsts = [], [], []
        retimed = [data.retimed(said) for said in batch]
        batch, own = [said for said, _ in retimed], [kept for _, kept in retimed]
        for said in batch:
            text, codes, first = self.sequence(said, data.corrupted(said), users)
            texts.append(text)
            spoken.append(codes)
            firsts.append(first)
        padded = (
            nn.utils.rnn.pad_sequence(x, batch_first=True, padding_value=NOTHING).to(device) for x in (texts, spoken)
        )
        inputs = self.inputs(*padded)
        positions = torch.arange(inputs.shape[1], device=device).expand(3, len(batch), -1)
        hidden = self.model.model(inputs_embeds=inputs, position_ids=positions, use_cache=False).last_hidden_state
        # Every frame and the end.
        states = torch.cat(
            [hidden[i, f : f + len(s.codes) + 1] for i, (f, s) in enumerate(zip(firsts, batch, strict=True))]
        )
        stop = torch.tensor([self.config.codec_eos_token_id])
        wanted = torch.cat([torch.cat([s.codes[:, 0], stop]) for s in batch]).to(device)
        talker = F.cross_entropy(self.model.codec_head(states).float(), wanted)

        named = self.naming(states).float().view(len(states), AHEAD, -1)
        coming = torch.cat(
            [torch.stack([F.pad(s.phonemes[k:], (0, k + 1), value=-100) for k in range(AHEAD)], 1) for s in batch]
        )
        phonemes = F.cross_entropy(named.flatten(0, 1), coming.to(device).flatten(), ignore_index=-100)

        speaking = wanted != self.config.codec_eos_token_id
        codes = torch.cat([s.codes for s in batch]).to(device)
        # Where a phoneme begins, the second book says for the first time which one follows: there alone the words are
        # read from the text.
        begins = codes[:, 2] // LENGTHS == 0
        any_frame, beginning = torch.randperm(len(codes), device=device), begins.nonzero()[:, 0]
        beginning = beginning[torch.randperm(len(beginning), device=device)]
        pick = torch.cat([any_frame[: PREDICTED // 2], beginning[: PREDICTED // 2]])
        each, read = self.predicted(states[speaking][pick], codes[pick], data)
        begins = begins[pick]
        # How long a phoneme lasts is said where it begins. A length that the teacher would not choose is to be heard,
        # not to be said.
        learnt = torch.ones_like(each, dtype=torch.bool)
        learnt[:, 1] = torch.cat(own).to(device)[pick] | ~begins
        right = (self.model.codec_head(states).argmax(-1) == wanted).float().mean()
        return {
            "talker": talker,
            "predictor": each[learnt].mean(),
            "next": each[begins, 0].mean(),
            "lengths": each[begins & learnt[:, 1], 1].mean(),
            "phonemes": phonemes,
            "right": right,
            "next right": read[begins].float().mean(),
        }

    def predicted(self, states: Tensor, codes: Tensor, data: Data) -> tuple[Tensor, Tensor]:
        """Cross entropies `[frames, CODEBOOKS - 1]` of codebooks 1 and on, each from the talker's state and the codes
        before it, of which up to a fifth are wrong; and whether the first of them is right.
        """
        predictor = self.model.code_predictor
        books = predictor.get_input_embeddings()
        other = data.codes[torch.randint(0, len(data.codes), (len(codes),))].to(codes.device)
        wrong = torch.rand(codes.shape, device=codes.device) < torch.rand(len(codes), 1, device=codes.device) * 0.2
        heard = torch.where(wrong, other, codes)
        first = self.model.get_input_embeddings()(codes[:, 0])
        inputs = torch.stack(
            [states, first.to(states.dtype)]
            + [books[k](heard[:, k + 1]).to(states.dtype) for k in range(CODEBOOKS - 2)],
            1,
        )
        hidden = predictor.model(inputs_embeds=inputs, use_cache=False).last_hidden_state
        scores = [predictor.lm_head[k](hidden[:, k + 1]).float() for k in range(CODEBOOKS - 1)]
        each = torch.stack(
            [
                F.cross_entropy(score, wanted(codes[:, k + 1], k + 1), reduction="none")
                for k, score in enumerate(scores)
            ],
            1,
        )
        return each, scores[0].argmax(-1) == codes[:, 1]


def wanted(codes: Tensor, book: int) -> Tensor:
    """Targets of a codebook's scores: codes `[n]`, or shares of all codes `[n, CODES]` where near ones are nearly
    right.
    """
    if book < MELODY.start:
        return codes
    places, deviation = (1, PITCH_BLUR) if book == MELODY.start else (VOICED, LEVEL_BLUR)
    every = torch.arange(CODES, device=codes.device)
    away = (every // places - codes[:, None] // places) / deviation
    alike = every % places == codes[:, None] % places
    return torch.where(alike, -0.5 * away.square(), -torch.inf).softmax(-1)


def token_of(words: Tokenizer, text: str) -> int:
    (only,) = words.encode(text).ids
    return only


@torch.no_grad()
def initialise(talker: nn.Module) -> None:
    """Weights that the reference leaves unset or tiny. The projection of the thinker's hidden states stays zero: text
    is all that this talker hears, so that it can be trained without a thinker.
    """
    for name, parameter in talker.named_parameters():
        if name.endswith("norm.weight"):
            parameter.fill_(1)
        elif parameter.dim() >= 2 and "embed" not in name:
            nn.init.normal_(parameter, 0, 0.7 * parameter.shape[-1] ** -0.5)
        elif parameter.dim() >= 2:
            nn.init.normal_(parameter, 0, 0.3)
    for parameter in talker.hidden_projection.parameters():
        parameter.zero_().requires_grad_(False)


def train(work: Path, scale: Scale, device: torch.device, warm_start: Path | None = None) -> None:
    """Trains to the scale's last step; goes on where an earlier run stopped. Writes `talker.pt`. `warm_start` is a
    checkpoint folder to begin from.
    """
    torch.manual_seed(scale.seed)
    data = Data(work)
    talker = Talker(data.words, tokenizer.embeddings(work))
    if warm_start:
        talker.warm_start(warm_start, data.words)
    talker.to(device)
    refines = warm_start is not None and config.is_own(warm_start)
    rate = scale.talker_rate * (REFINED_RATE if refines else 1)
    run = Run("talker", work / "talker.pt", talker, rate, scale.talker_steps, scale.threads)
    print(f"talker: {len(data.answers)} answers, {len(data.codes)} frames", flush=True)
    for _ in run:
        with autocast(device):
            losses = talker.loss(data.batch(scale.talker_batch), data)
        run.update(
            "main",
            losses["talker"] + losses["predictor"] + losses["next"] + losses["lengths"] + 0.3 * losses["phonemes"],
        )
        run.report(losses)
