"""Questions are spoken and the thinker learns from them: each step on a few seconds of data."""

import contextlib
import copy
import io
import random
import re
import shutil
import tempfile
import unittest
import unittest.mock
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyworld
import torch
from tokenizers import Tokenizer
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeThinkerForConditionalGeneration

from demo_recipe import config, features, held_out, kokoro, questions, thinker, thinker_frozen, thinker_judge, tokenizer
from demo_recipe.domain import Turn, dictation, practice
from demo_recipe.domain.unknown import ANSWER, overheard
from demo_recipe.domain.words import TENS
from demo_recipe.scale import SMOKE
from demo_recipe.thinker_data import (
    DICTATED_SHARE,
    FEW_VOICES_WEIGHT,
    NATURAL_SHARE,
    TRANSCRIBE,
    TRANSCRIBE_INSTEAD,
    Chest,
    Composer,
    Part,
    Talk,
    Template,
    asks_for,
    batch,
    follows,
)
from demo_recipe.thinker_model import IGNORED, Thinker

CPU = torch.device("cpu")
GATEWAY = Path(__file__).parents[4] / "gateway/realtime/src"


class Steps(unittest.TestCase):
    """One work folder for all: its questions and tokenizer take a few seconds to make."""

    work: Path
    words: Tokenizer
    model: Thinker
    template: Template

    @classmethod
    def setUpClass(cls) -> None:
        cls.work = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.work)
        torch.set_num_threads(1)
        questions.make(cls.work, SMOKE)
        cls.words = tokenizer.load(cls.work)
        cls.model = Thinker(cls.words, tokenizer.embeddings(cls.work)).eval()
        cls.template = Template(cls.words)

    def test_questions_are_heard_and_held_out_voices_apart(self) -> None:
        sets = ("train", "natural", "dictated", "held_out")
        train, natural, dictated, held_out = (questions.load(self.work / "questions" / name) for name in sets)
        apart = {*questions.HELD_OUT_VOICES, *questions.HELD_OUT_SINCE}
        self.assertEqual({turn.voice.split()[0] for talk in natural for turn in talk}, {"kokoro"})
        self.assertNotIn("kokoro", {turn.voice.split()[0] for talk in train for turn in talk})
        self.assertTrue({turn.voice for talk in held_out for turn in talk} <= apart)
        self.assertFalse({turn.voice for talk in train + dictated for turn in talk} & apart)
        mixed = {f"kokoro {name}" for talk in natural for turn in talk for name in turn.voice.split()[1].split("+")}
        self.assertFalse(mixed & apart)
        for talk in train + natural + dictated + held_out:
            self.assertEqual(len({turn.voice for turn in talk}), 1)
            for turn in talk:
                self.assertGreater(len(turn.sound), questions.RATE // 5)
                self.assertGreater(np.abs(turn.sound.astype(int)).max(), 15_000)

    def test_spoken_questions_are_not_made_again(self) -> None:
        made = sorted((self.work / "questions").rglob("*.npy"))
        before = [path.stat().st_mtime_ns for path in made]
        questions.make(self.work, SMOKE)
        self.assertEqual(before, [path.stat().st_mtime_ns for path in made])

    def test_training_stops_is_saved_and_goes_on(self) -> None:
        thinker.train(self.work, replace(SMOKE, thinker_steps=2), None, CPU)
        state = torch.load(self.work / "thinker_state.pt")
        self.assertEqual(state["step"], 2)
        self.assertTrue(all(value.isfinite().all() for value in state["model"].values()))
        thinker.train(self.work, replace(SMOKE, thinker_steps=3), None, CPU)
        self.assertEqual(torch.load(self.work / "thinker_state.pt")["step"], 3)
        made = Qwen3OmniMoeThinkerForConditionalGeneration._from_config(config.model(self.words).thinker_config)
        made.load_state_dict(torch.load(self.work / "thinker.pt")["model"])

    def test_a_thinker_is_judged_by_lists_in_every_condition(self) -> None:
        work, lists = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
        for folder in (work, lists):
            self.addCleanup(shutil.rmtree, folder)
        asked = Turn("colours", "What color is snow?", "Snow is white.", ("white",))
        for kind in held_out.KINDS:
            turns = (asked, asked) if kind in ("follow-up", "memory") else (asked,)
            held_out.write(lists / f"{kind}.json", [held_out.Held(questions.Voice("espeak en-us+m6", 1.0, 50), turns)])
        with self.assertRaisesRegex(SystemExit, "thinker"), silent():
            thinker_frozen.judge(work, None, CPU, 1)
        shutil.copy(self.work / "tokenizer.json", work)
        torch.save({"model": self.model.reference.state_dict()}, work / "thinker.pt")
        with (
            unittest.mock.patch.object(thinker_frozen, "LISTS", lists),
            unittest.mock.patch.object(thinker_frozen, "RECORDINGS", lists),
            silent() as said,
        ):
            thinker_frozen.judge(work, None, CPU, 1)
        found = {line.split(":")[0]: line for line in said.getvalue().splitlines()}
        for what in (
            "single, clean",
            "single, noise",
            "single, telephone",
            "follow-up, clean",
            "memory, clean",
            "unknown, clean",
        ):
            self.assertIn("of 1; espeak", found[what], what)
        self.assertIn("of 1 without an error", found["written down, clean"])

    def test_after_a_warm_start_the_transcripts_head_learns_alone_first(self) -> None:
        sound = np.random.default_rng(5).standard_normal(20_000).astype(np.float32) * 0.1
        made = batch([Talk([Part("What color is snow?", "Snow is white.", sound)])], self.template)
        for reaches in (True, False):
            model = copy.deepcopy(self.model)
            model.losses(made, transcript_reaches_tower=reaches)[1].backward()
            self.assertEqual(model.tower.conv2d1.weight.grad is not None, reaches)
            self.assertIsNotNone(model.transcript.weight.grad)

    def test_a_warped_voice_is_higher_or_lower_and_as_fast(self) -> None:
        at = np.arange(2 * features.RATE) / features.RATE
        tones = [(0.5 * np.sin(2 * np.pi * hertz * at)).astype(np.float32) for hertz in (500.0, 1500.0, 3000.0)]
        heard = features.log_mel(tones)
        torch.manual_seed(3)
        made = thinker.warped(heard)
        self.assertTrue(torch.equal(made.frames, heard.frames))
        loudest = [features.bins_hertz()[windows.mel.mean(1).argmax(1)] for windows in (heard, made)]
        factors = loudest[1] / loudest[0]
        self.assertLess(float((factors[heard.first] - factors[~heard.first]).abs().max()), 0.02, "one factor a turn")
        self.assertTrue(((factors > 0.98 - thinker.WARP) & (factors < 1.02 + thinker.WARP)).all(), factors)
        self.assertGreater(float((factors - 1).abs().max()), 0.03, factors)
        with unittest.mock.patch.object(thinker, "WARPED_SHARE", 0.0):
            self.assertTrue(torch.allclose(thinker.warped(heard).mel, heard.mel, atol=1e-4))

    def test_what_is_asked_behind_a_turn_is_a_message_of_its_own(self) -> None:
        """As the engine's chat template writes two messages of the user."""
        made = batch([Talk([Part("Hi.", "Hi.", np.zeros(8_000, np.float32), TRANSCRIBE)])], self.template)
        whole = self.words.decode(made.ids[0].tolist(), skip_special_tokens=False).replace("<|audio_pad|>", "")
        self.assertTrue(
            whole.startswith(
                f"<|im_start|>user\n<|audio_start|><|audio_end|><|im_end|>\n<|im_start|>user\n{TRANSCRIBE}<|im_end|>\n"
                "<|im_start|>assistant\nHi.<|im_end|>\n"
            ),
            whole,
        )

    def test_the_audio_tower_hears_as_the_reference_does(self) -> None:
        random = np.random.default_rng(3)
        # A turn of less than a window, one that ends with a window, one with a rest.
        sounds = [random.standard_normal(samples).astype(np.float32) * 0.1 for samples in (9_000, 32_000, 40_100)]
        with torch.no_grad():
            for sound, heard in zip(sounds, self._hear(sounds), strict=True):
                mel = torch.cat(
                    [w[:n] for w, n in zip(*(lambda w: (w.mel, w.frames))(features.log_mel([sound])), strict=True)]
                )
                expected = self.model.tower(mel.T.contiguous(), feature_lens=torch.tensor([len(mel)])).last_hidden_state
                torch.testing.assert_close(heard, expected, atol=1e-4, rtol=1e-4)

    def test_the_thinker_reads_as_the_reference_does(self) -> None:
        """With its own merging of sound and text, its own positions and its own mask."""
        sounds = [np.random.default_rng(4).standard_normal(20_000).astype(np.float32) * 0.1] * 2
        talk = [Part("one", "Yes.", sounds[0]), Part("Two", "No."), Part("three", "Yes.", sounds[1])]
        made = batch([Talk(talk)], self.template)
        with torch.no_grad():
            windows = made.windows
            hidden = self.model.read(made.ids, self.model.hear(windows))
            frames = torch.zeros(2, dtype=torch.long).index_add_(0, windows.turn, windows.frames)
            mel = torch.zeros(2, features.BINS, int(frames.max()))
            for turn in range(2):
                own = [m[:n] for m, n, t in zip(windows.mel, windows.frames, windows.turn, strict=True) if t == turn]
                mel[turn, :, : frames[turn]] = torch.cat(own).T
            present = (torch.arange(mel.shape[2])[None] < frames[:, None]).long()
            expected = self.model.reference(
                input_ids=made.ids,
                attention_mask=torch.ones_like(made.ids),
                input_features=mel,
                feature_attention_mask=present,
            ).logits
            torch.testing.assert_close(self.model.reference.lm_head(hidden), expected, atol=1e-3, rtol=1e-3)

    def test_only_answers_and_their_stops_are_learnt(self) -> None:
        written = Talk(
            [Part("Hello.", "Hello! How can I help you?"), Part("Bye.", "Goodbye, talk to you soon.")], "Be kind."
        )
        made = batch([written, Talk([Part("x", "y", np.zeros(8_000, np.float32))])], self.template)
        wanted = [token for token in made.targets[0].tolist() if token != IGNORED]
        text = self.words.decode(wanted, skip_special_tokens=False)
        self.assertEqual(text, "Hello! How can I help you?<|im_end|>Goodbye, talk to you soon.<|im_end|>")
        whole = self.words.decode(made.ids[0].tolist(), skip_special_tokens=False)
        self.assertTrue(
            whole.startswith(
                "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHello.<|im_end|>\n"
                "<|im_start|>assistant\nHello! How can I help you?<|im_end|>\n"
                "<|im_start|>user\nBye.<|im_end|>\n"
            )
        )
        for at in (made.targets[0] != IGNORED).nonzero().flatten().tolist():
            self.assertEqual(made.targets[0][at], made.ids[0][at + 1])

    def _hear(self, sounds: list[np.ndarray]) -> tuple[torch.Tensor, ...]:
        windows = features.log_mel(sounds)
        counts = torch.zeros(len(sounds), dtype=torch.long).index_add_(0, windows.turn, windows.tokens())
        return self.model.hear(windows).split(counts.tolist())


def silent() -> contextlib.redirect_stdout:
    return contextlib.redirect_stdout(io.StringIO())


def spoken_by(whom: str, talks: int = 1) -> Chest:
    turn = Turn("colours", f"{whom} asks.", "Snow is white.", ("white",))
    return Chest([[questions.Spoken(np.zeros(8_000, np.int16), whom, turn)]] * talks)


def as_it_is(sound: np.ndarray) -> np.ndarray:
    return sound.astype(np.float32)


class Rules(unittest.TestCase):
    def test_voices_that_training_hears_have_the_pitch_and_pace_of_their_callers(self) -> None:
        def heard(name: str, pitch: int) -> float:
            """Median pitch in Hz."""
            sound = questions.Voice(name, 1.0, pitch).say("Tell me the name of the young animal.").astype(float)
            hertz, _ = pyworld.dio(sound, questions.RATE)
            return float(np.median(hertz[hertz > 0]))

        for name in ("flite slt", "flite awb", "festival ked_diphone"):
            self.assertGreater(heard(name, 80), 1.5 * heard(name, 35), name)
        # The judge's voice stays as it is.
        self.assertEqual(heard("flite rms", 80), heard("flite rms", 20))
        for name in questions.FESTIVAL:
            quick, slow = (
                len(questions.Voice(f"festival {name}", speed, 50).say('Repeat: the "cup" is (1) red.'))
                for speed in (1.2, 0.8)
            )
            self.assertGreater(slow, 1.2 * quick, name)

    def test_a_mixed_voice_is_between_its_two(self) -> None:
        two, mixed = ("af_heart", "am_adam"), "af_heart+am_adam"
        styles = [kokoro.style(name) for name in two]
        np.testing.assert_allclose(kokoro.style(mixed), (styles[0] + styles[1]) / 2, atol=1e-6)
        names = [name.split()[1].split("+") for name in questions.AMONG["natural"]]
        self.assertEqual({len(some) for some in names}, {1, 2})
        self.assertEqual({one for some in names for one in some}, set(questions.KOKORO))

    def test_a_turn_is_written_down_as_the_gateway_asks(self) -> None:
        told = (GATEWAY / "transcription.rs").read_text()
        self.assertIn(f'const INSTRUCTION: &str = "{TRANSCRIBE}";', told)
        composer = Composer(spoken_by("synthetic"), spoken_by("natural"), spoken_by("dictated"), as_it_is, 1)
        talks = [composer.next() for _ in range(600)]
        asked = [talk for talk in talks if any(part.behind for part in talk.parts)]
        self.assertGreater(len(asked), 20)
        for talk in asked:
            self.assertEqual(talk.instructions, "")
            for part in talk.parts:
                self.assertEqual(part.answer, part.question)
                self.assertIsNotNone(part.sound)
                self.assertTrue(part.behind.startswith(TRANSCRIBE))
        written = [part.question for talk in asked for part in talk.parts]
        self.assertAlmostEqual(written.count("dictated asks.") / len(written), DICTATED_SHARE, delta=0.1)
        instead = [talk for talk in talks if talk.instructions in TRANSCRIBE_INSTEAD]
        self.assertGreater(len(instead), 3)
        for talk in instead:
            self.assertTrue(all(part.answer == part.question and part.sound is not None for part in talk.parts))
        for talk in talks:
            if not any(talk is other for other in asked + instead):
                self.assertTrue(
                    all(part.answer != part.question and "dictated" not in part.question for part in talk.parts)
                )

    def test_what_is_dictated_are_pieces_of_what_callers_say(self) -> None:
        r = random.Random(3)
        said = [dictation(r).question for _ in range(2_000)]
        self.assertEqual([text for text in said if not re.fullmatch(r"[A-Z'][\w' ]*\.", text)], [])
        self.assertGreater(len(set(said)), 1_900)
        known = {
            word
            for _ in range(20_000)
            for turn in practice(r).turns
            for word in re.findall(r"[\w']+", turn.question.lower())
        }
        unheard = [word for text in said for word in re.findall(r"[\w']+", text.lower()) if word not in known]
        self.assertLess(len(unheard), 5, unheard)

    def test_natural_voices_ask_as_often_as_they_should_however_few_they_are(self) -> None:
        composer = Composer(spoken_by("synthetic", 50), spoken_by("natural", 2), spoken_by("dictated"), as_it_is, 2)
        parts = [
            part
            for _ in range(1_000)
            for part in composer.next().parts
            if part.sound is not None and "dictated" not in part.question
        ]
        natural = sum(part.question.startswith("natural") for part in parts) / len(parts)
        self.assertAlmostEqual(natural, NATURAL_SHARE, delta=0.06)

    def test_synthesisers_of_few_voices_come_more_often_than_they_were_drawn(self) -> None:
        turn = Turn("colours", "What color is snow?", "Snow is white.", ("white",))
        voices = ["flite slt", "espeak en-us+m1", "espeak en-gb+f2"]
        chest = Chest([[questions.Spoken(np.zeros(8_000, np.int16), voice, turn)] for voice in voices])
        r = random.Random(4)
        flite = sum(chest.draw(r)[0].voice == "flite slt" for _ in range(2_000)) / 2_000
        self.assertAlmostEqual(flite, FEW_VOICES_WEIGHT / (FEW_VOICES_WEIGHT + 2), delta=0.04)

    def test_what_asks_for_nothing_is_met_with_not_knowing(self) -> None:
        r = random.Random(2)
        said = [overheard(r) for _ in range(3_000)]
        self.assertEqual({turn.answer for turn in said}, {ANSWER})
        self.assertFalse([turn.question for turn in said if "{" in turn.question])
        self.assertGreater(len({turn.question for turn in said}), 2_000)
        practised = [turn.question for _ in range(2_000) for turn in practice(r).turns if turn.topic == "unknown"]
        self.assertTrue(any(question.startswith("Room") for question in practised))

    def test_practice_has_sums_of_tens_and_hesitations(self) -> None:
        r = random.Random(1)
        asked = [turn for _ in range(3_000) for turn in practice(r).turns]
        tens = [
            t
            for t in asked
            if t.topic == "arithmetic" and sum(word in TENS for word in t.question.rstrip(".?").split()) == 2
        ]
        self.assertGreater(len(tens), 100)
        self.assertGreater(sum("um" in t.question.lower().split(",")[0].split("...") for t in asked), 20)
        for t in asked:
            self.assertTrue(thinker_judge.Judged(t, "", t.answer, 0).right, t)

    def test_an_answer_is_right_by_what_decides(self) -> None:
        def right(turn: Turn, answer: str) -> bool:
            return thinker_judge.Judged(turn, "", answer, 0).right

        arithmetic = Turn("arithmetic", "", "Twenty plus five is twenty five.", ("twenty", "five"))
        self.assertTrue(right(arithmetic, "Ten plus fifteen is twenty five."))
        self.assertFalse(right(arithmetic, "Twenty plus five is five."))
        five = Turn("arithmetic", "", "Three plus two is five.", ("five",))
        self.assertFalse(right(five, "Five plus two is seven."))
        self.assertFalse(right(five, "Three plus two is twenty five."))
        day = Turn("days and months", "", "Monday comes after Sunday.", ("monday",))
        self.assertTrue(right(day, "Monday comes after Sunday."))
        self.assertFalse(right(day, "Tuesday comes after Monday."))

    def test_nobody_is_told_that_he_never_said_what_he_said(self) -> None:
        told, asked = (
            Turn("names", "", "Nice to meet you, Anna.", ()),
            Turn("memory", "", "You have not told me your name.", ()),
        )
        self.assertFalse(follows([told], [asked]))
        self.assertTrue(follows([asked], [told]))

    def test_what_a_request_is_for(self) -> None:
        self.assertEqual(asks_for("What is my favorite color?"), "color")
        self.assertEqual(asks_for("Who am I?"), "name")


if __name__ == "__main__":
    unittest.main()
