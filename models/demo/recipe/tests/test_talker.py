"""The talker learns codes: on codes that were made up here, so that no voice is needed."""

import json
import shutil
import signal
import tempfile
import unittest
import unittest.mock
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from demo_recipe import config, speaking, talker, tokenizer
from demo_recipe.codes import FEWEST, LENGTHS, LEVELS, MOST, VOICED
from demo_recipe.config import CODEBOOKS, CODES
from demo_recipe.scale import SMOKE

CPU = torch.device("cpu")
TEXTS = ("Hello! How can I help you?", "Two plus two is four.", "The capital of France is Paris.")


def made_up(frames: int, random: np.random.Generator) -> np.ndarray:
    """Codes of phonemes of three frames each, with any that follow and said with any melody."""
    phonemes = 1 + np.arange(frames) // 3 % 4
    places = np.arange(frames) % 3 * LENGTHS + np.minimum(3, frames - np.arange(frames) // 3 * 3) - 1
    voiced = random.integers(0, (MOST, LEVELS * VOICED, LEVELS * VOICED), (frames, 3))
    return np.concatenate(
        [np.stack([phonemes, random.integers(1, 80, frames), places], 1), np.maximum(voiced, (FEWEST, 0, 0))], 1
    )


class Steps(unittest.TestCase):
    work: Path
    data: talker.Data
    model: talker.Talker

    @classmethod
    def setUpClass(cls) -> None:
        cls.work = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.work)
        torch.manual_seed(1)
        torch.set_num_threads(1)
        said = [made_up(9 + k, np.random.default_rng(k)) for k in range(3)]
        (cls.work / "codes").mkdir()
        (cls.work / "codes/00000.json").write_text(json.dumps(TEXTS))
        frames = np.array([len(codes) for codes in said])
        np.savez(cls.work / "codes/00000.npz", codes=np.concatenate(said).astype(np.uint8), frames=frames)
        cls.data = talker.Data(cls.work)
        cls.model = talker.Talker(cls.data.words, tokenizer.embeddings(cls.work)).eval()

    def test_training_stops_is_saved_and_goes_on(self) -> None:
        talker.train(self.work, replace(SMOKE, talker_steps=2), CPU)
        self.assertEqual(torch.load(self.work / "talker.pt")["step"], 2)
        talker.train(self.work, replace(SMOKE, talker_steps=3), CPU)
        kept = torch.load(self.work / "talker.pt")
        self.assertEqual(kept["step"], 3)
        weights, optimiser = kept["parts"]["main"]
        self.assertTrue(all(value.isfinite().all() for value in weights.values()))
        self.assertEqual({int(state["step"]) for state in optimiser["state"].values()}, {3})
        # The thinker's hidden states are not listened to.
        silent = [name for name in weights if "hidden_projection" in name]
        self.assertTrue(silent)
        self.assertFalse(any(weights[name].any() for name in silent))

    def test_an_interrupt_ends_training_after_the_step_at_hand(self) -> None:
        work = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, work)
        shutil.copytree(self.work / "codes", work / "codes")
        for name in ("tokenizer.json", "embed.pt"):
            shutil.copy(self.work / name, work)
        data = talker.Data.batch

        def interrupting(self: talker.Data, count: int) -> list[talker.Spoken]:
            signal.raise_signal(signal.SIGINT)
            return data(self, count)

        before = signal.getsignal(signal.SIGINT)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        with unittest.mock.patch.object(talker.Data, "batch", interrupting), self.assertRaises(SystemExit) as stopped:
            talker.train(work, replace(SMOKE, talker_steps=50), CPU)
        self.assertEqual(stopped.exception.code, 124)
        self.assertEqual(torch.load(work / "talker.pt")["step"], 1)

    def test_each_frame_is_fed_with_the_text_that_is_due(self) -> None:
        """Row k after the first is frame k's codes and text token k + 1; the end of the text once, then padding."""
        said = self.data.answers[1]
        with torch.no_grad():
            text, codes, first = self.model.sequence(said, said.codes, [])
            rows = self.model.inputs(text, codes)
            books = self.model.model.code_predictor.get_input_embeddings()
            sound = self.model.model.get_input_embeddings()(said.codes[:, 0]) + sum(
                books[k](said.codes[:, k + 1]) for k in range(CODEBOOKS - 1)
            )
            self.assertEqual(len(rows), first + 1 + len(said.codes))
            token = self.data.words.token_to_id
            due = [*said.text[1:].tolist(), token("<tts_text_eod>")]
            due += [token("<tts_pad>")] * len(said.codes)
            written = self.model.model.text_projection(self.model.text[torch.tensor(due[: len(said.codes)])])
            torch.testing.assert_close(rows[first + 1 :], sound + written)

    def test_sound_of_the_user_is_silence_to_the_talker(self) -> None:
        said = self.data.answers[0]
        with torch.no_grad():
            text, codes, first = self.model.sequence(said, said.codes, self.model.user(None, 7))
            rows = self.model.inputs(text, codes)
        silent = (rows[: first + 1] == 0).all(-1)
        self.assertEqual(int(silent.sum()), 7)

    def test_what_comes_later_does_not_change_what_was_said(self) -> None:
        said = self.data.answers[2]
        changed = said.codes.clone()
        changed[5:] = (changed[5:] + 1) % CODES
        with torch.no_grad():
            hidden = []
            for given in (said.codes, changed):
                text, codes, first = self.model.sequence(said, given, [])
                rows = self.model.inputs(text, codes)
                positions = torch.arange(len(rows)).expand(3, 1, -1)
                out = self.model.model.model(inputs_embeds=rows[None], position_ids=positions, use_cache=False)
                hidden.append(out.last_hidden_state[0, first:])
        torch.testing.assert_close(hidden[0][:6], hidden[1][:6])
        self.assertGreater((hidden[0][6:] - hidden[1][6:]).abs().max(), 1e-4)

    def test_wrong_codes_are_codes_and_not_all_are_wrong(self) -> None:
        torch.manual_seed(2)
        said = self.data.answers[0]
        tries = torch.stack([self.data.corrupted(said) for _ in range(400)])
        self.assertTrue(((tries >= 0) & (tries < CODES)).all())
        wrong = (tries != said.codes).float().mean((0, 1))
        # The phoneme and its place carry the words: they are wrong much more rarely. The phoneme that comes is to be
        # read in the text.
        self.assertLess(wrong[[0, 2]].max() * 3, wrong[1])
        # Melody and loudness would tell which answer it is.
        self.assertGreater(wrong[3:].min(), 0.5)

    def test_melody_of_what_is_heard_is_never_the_teachers(self) -> None:
        torch.manual_seed(3)
        said = self.data.answers[2]
        for _ in range(50):
            heard = self.data.corrupted(said)
            self.assertFalse(torch.equal(heard[:, 3:], said.codes[:, 3:]))

    def test_lengths_change_a_little_and_stay_true(self) -> None:
        torch.manual_seed(4)
        said = self.data.answers[2]
        lengths = set()
        for _ in range(50):
            changed, own = self.data.retimed(said)
            codes = changed.codes
            self.assertTrue(torch.equal(codes[0], said.codes[0]))
            ends = (codes[1:, 2] // LENGTHS == 0).nonzero()[:, 0] + 1
            before = said.codes[:, 2].tensor_split((said.codes[1:, 2] // LENGTHS == 0).nonzero()[:, 0] + 1)
            for run, was, kept in zip(codes[:, 2].tensor_split(ends), before, own.tensor_split(ends), strict=True):
                self.assertEqual(run.tolist(), [place * LENGTHS + len(run) - 1 for place in range(len(run))])
                # Whose length is not the teacher's is marked, nothing else.
                self.assertEqual(kept.tolist(), [len(run) == len(was)] * len(run))
            self.assertEqual(
                [int(p) for p in codes[:, 0].unique_consecutive()], [int(p) for p in said.phonemes.unique_consecutive()]
            )
            lengths.add(len(codes))
        self.assertGreater(len(lengths), 2)
        self.assertLessEqual(max(lengths) - min(lengths), 2 * len(said.phonemes.unique_consecutive()))

    def test_what_runs_freely_says_the_likeliest_codes(self) -> None:
        """Read at once, each frame that was said one by one is the likeliest after those before it."""
        self.model.words = self.data.words
        with unittest.mock.patch.object(speaking, "LONGEST_SPEECH", 5), torch.no_grad():
            spoken = speaking.say(self.model, list(TEXTS))
        for answer, made in zip(self.data.answers, spoken, strict=True):
            self.assertLessEqual(len(made), 5)
            self.assertTrue(((made >= 0) & (made < CODES)).all())
            self.assertEqual(self.likeliest(answer.text, made)[: len(made)], made[:, 0].tolist())

    def test_a_plan_fixes_words_and_lengths_and_nothing_of_the_melody(self) -> None:
        self.model.words = self.data.words
        plans = [answer.codes for answer in self.data.answers]
        spoken = speaking.say(self.model, list(TEXTS), plans)
        for plan, made in zip(plans, spoken, strict=True):
            self.assertEqual(made.shape, plan.shape)
            torch.testing.assert_close(made[:, : talker.MELODY.start], plan[:, : talker.MELODY.start])
        # Whatever melody a plan has, the same is said.
        other = [torch.cat([plan[:, : talker.MELODY.start], plan[:, talker.MELODY].flip(0)], 1) for plan in plans]
        self.assertTrue(any((a != b).any() for a, b in zip(plans, other, strict=True)))
        for made, again in zip(spoken, speaking.say(self.model, list(TEXTS), other), strict=True):
            torch.testing.assert_close(made, again)

    def likeliest(self, text: torch.Tensor, made: torch.Tensor) -> list[int]:
        """The first codebook's likeliest code after each frame before, all read at once."""
        said = talker.Spoken(text, made)
        tokens, codes, first = self.model.sequence(said, made, self.model.user(None, speaking.ASKED))
        with torch.no_grad():
            rows = self.model.inputs(tokens, codes)
            positions = torch.arange(len(rows)).expand(3, 1, -1)
            hidden = self.model.model.model(
                inputs_embeds=rows[None], position_ids=positions, use_cache=False
            ).last_hidden_state[0, first:]
            return self.model.model.codec_head(hidden)[:, :CODES].argmax(-1).tolist()

    def test_near_pitch_and_loudness_are_nearly_right_and_words_are_not(self) -> None:
        codes = torch.tensor([20, 31])
        for book in (1, 2):
            self.assertIs(talker.wanted(codes, book), codes)
        for book, step in ((3, 1), (4, VOICED), (5, VOICED)):
            shares = talker.wanted(codes, book)
            self.assertEqual(shares.argmax(-1).tolist(), codes.tolist())
            torch.testing.assert_close(shares.sum(-1), torch.ones(2))
            torch.testing.assert_close(shares[:, 20 + step], shares[:, 20 - step])
            self.assertGreater(shares[0, 20 + step], 2 * shares[0, 20 + 2 * step])
        # How much is voiced has no neighbours.
        self.assertEqual(float(talker.wanted(codes, 4)[0, 21]), 0.0)

    def test_the_codes_fit_the_talkers_vocabulary(self) -> None:
        text = config.model(self.data.words).talker_config.text_config
        self.assertGreater(text.vocab_size, config.CODEC_SPEAKER)


if __name__ == "__main__":
    unittest.main()
