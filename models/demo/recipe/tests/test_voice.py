"""The teacher speaks, its speech becomes codes and targets, the codec learns them: each step on a few sentences."""

import shutil
import tempfile
import unittest
import unittest.mock
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeCode2Wav, Qwen3OmniMoeSnakeBeta

from demo_recipe import (
    align,
    answers,
    codec_train,
    codes,
    config,
    phonemes,
    snake,
    spectra,
    teacher,
    tokenizer,
    training,
    voice,
)
from demo_recipe.codec import Codec
from demo_recipe.config import CODEBOOKS, CODES, FRAME
from demo_recipe.domain import conversations
from demo_recipe.scale import SMOKE
from demo_recipe.talker import Talker

CPU = torch.device("cpu")


def sound(one: answers.Answer) -> np.ndarray:
    assert one.samples is not None
    return one.samples


class Steps(unittest.TestCase):
    """One work folder for all: each step starts from what the step before left there."""

    work: Path

    @classmethod
    def setUpClass(cls) -> None:
        cls.work = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.work)
        torch.set_num_threads(1)
        answers.make(cls.work, SMOKE)
        answers.plan(cls.work, SMOKE)
        teacher.make(cls.work, SMOKE)

    def made(self) -> dict[Path, int]:
        return {
            path: path.stat().st_mtime_ns
            for folder in ("answers", "codes", "targets")
            for path in (self.work / folder).iterdir()
        }

    def test_answers_last_whole_frames_of_codes(self) -> None:
        spoken = list(answers.load(self.work))
        self.assertEqual(len(spoken), SMOKE.answers)
        for one in spoken:
            self.assertEqual(len(sound(one)), len(one.codes) * FRAME)
            self.assertGreater(np.abs(sound(one).astype(int)).max(), 3_000)
            self.assertGreater(len(set(one.codes[:, 0].tolist())), 3)

    def test_codes_are_the_same_with_and_without_sound(self) -> None:
        planned = {one.text: one.codes for one in answers.load(self.work, "codes")}
        self.assertEqual(len(planned), SMOKE.planned)
        for one in answers.load(self.work):
            np.testing.assert_array_equal(planned[one.text], one.codes)

    def test_what_is_there_is_not_made_again(self) -> None:
        before = self.made()
        self.assertEqual(len(before), 5)
        answers.make(self.work, SMOKE)
        answers.plan(self.work, SMOKE)
        teacher.make(self.work, SMOKE)
        self.assertEqual(before, self.made())

    def test_targets_fit_their_answers(self) -> None:
        (path,) = (self.work / "targets").glob("*.npz")
        wave, said = np.load(path)["wave"], list(answers.load(self.work))
        self.assertEqual(len(wave), sum(len(sound(one)) for one in said))
        self.assertTrue(np.isfinite(wave).all())
        # About as loud as the answers, and never clipped.
        spoken = np.concatenate([sound(one) for one in said]).astype(np.float64) / 32768
        level, wanted = (np.sqrt(np.mean(np.square(x.astype(np.float64)))) for x in (wave, spoken))
        self.assertAlmostEqual(20 * np.log10(level / wanted), 20 * np.log10(teacher.LEVEL), delta=3)
        self.assertLess(np.abs(wave).max(), 1)

    def test_every_answer_is_trained_or_held_out(self) -> None:
        both = [answer.text for held_out in (False, True) for answer, _, _ in codec_train.targets(self.work, held_out)]
        self.assertCountEqual(both, [one.text for one in answers.load(self.work)])

    def test_a_stop_changes_nothing_of_the_codec(self) -> None:
        trained = []
        for stops in ((4,), (2, 4)):
            (self.work / "codec.pt").unlink(missing_ok=True)
            for steps in stops:
                # The rate falls along the whole run, so the end must be known from the start.
                run = replace(SMOKE, codec_steps=4, adversarial=False)
                with unittest.mock.patch.object(codec_train, "Run", stopping_at(steps)):
                    codec_train.train(self.work, run, CPU)
                self.assertEqual(torch.load(self.work / "codec.pt")["step"], steps)
            trained.append(torch.load(self.work / "codec.pt"))
        # An optimiser that goes on has counted the steps before.
        self.assertEqual({int(state["step"]) for state in trained[1]["parts"]["main"][1]["state"].values()}, {4})
        for name, value in trained[0]["ema"].items():
            self.assertTrue(value.isfinite().all(), name)
            torch.testing.assert_close(value, trained[1]["ema"][name], msg=name)

    def test_critics_join(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for made in ("answers", "targets"):
                shutil.copytree(self.work / made, Path(folder) / made)
            codec_train.train(Path(folder), SMOKE, CPU)
            self.assertIn("critics", torch.load(Path(folder) / "codec.pt")["parts"])

    def test_the_codec_is_tuned_with_the_loudness_that_a_talker_says(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            for made in ("answers", "targets"):
                shutil.copytree(self.work / made, work / made)
            untuned = Codec()
            torch.save({"ema": untuned.state_dict()}, work / "codec.pt")
            with self.assertRaisesRegex(SystemExit, "align"):
                codec_train.tune(work, SMOKE, CPU)
            torch.save(
                {"ema": Talker(tokenizer.load(work), tokenizer.embeddings(work)).state_dict()}, work / "talker.pt"
            )
            align.make(work, SMOKE, CPU)
            taught = list(answers.load(work))
            own = answers.aligned(work, "00000")
            assert own is not None
            said = np.concatenate([one.codes for one in taught])
            self.assertEqual((own.shape, own.dtype), (said.shape, said.dtype))
            np.testing.assert_array_equal(own[:, : codes.LOUDNESS.start], said[:, : codes.LOUDNESS.start])
            self.assertTrue((own[:, codes.LOUDNESS] != said[:, codes.LOUDNESS]).any())
            # An answer that is trained has its own frames of both.
            data = codec_train.Targets.load(work, tunes=True)
            place = 0
            for (one, _, aligned), start in zip(
                codec_train.targets(work, held_out=False), data.starts.tolist(), strict=True
            ):
                self.assertEqual(start, place)
                assert aligned is not None and data.aligned is not None
                for kept, its in ((data.codes, one.codes), (data.aligned, aligned)):
                    np.testing.assert_array_equal(kept[start : start + len(its)].numpy(), its)
                place += len(one.codes)
            codec_train.tune(work, SMOKE, CPU)
            self.assertEqual(torch.load(work / "tuned.pt")["step"], SMOKE.tune_steps)
            # It went on from the codec, and is what goes out.
            self.assertLess((codec_train.weights(work)["codes.weight"] - untuned.codes.weight).abs().max(), 0.1)
            self.assertFalse(torch.equal(codec_train.weights(work)["codes.weight"], untuned.codes.weight))
            self.assertTrue(torch.equal(torch.load(work / "codec.pt")["ema"]["codes.weight"], untuned.codes.weight))


def stopping_at(step: int) -> type[training.Run]:
    """A run that is interrupted after some steps."""

    class Stopping(training.Run):
        def __iter__(self) -> Iterator[int]:
            for at in super().__iter__():
                yield at
                if at + 1 == step:
                    self.step += 1
                    self._average()
                    self.save()
                    return

    return Stopping


class Rules(unittest.TestCase):
    def test_the_answers_of_every_topic_are_spoken(self) -> None:
        chosen = set(answers.texts(2_000))
        self.assertEqual(len(chosen), 2_000)
        topics = {turn.topic for talk in conversations(3_000, seed=11) for turn in talk.turns}
        heard = {turn.topic for talk in conversations(3_000, seed=11) for turn in talk.turns if turn.answer in chosen}
        self.assertEqual(topics, heard)

    def test_every_phoneme_lasts_whole_codec_frames(self) -> None:
        symbols = "həlˈO, wˈɜld."
        free = np.random.default_rng(1).uniform(0.5, 9, len(symbols) + 2).astype(np.float32)
        locked, places = voice.lock(symbols, free)
        self.assertEqual(locked.sum(), len(places) * voice.UNITS)
        self.assertTrue((locked >= 0).all() and (locked == np.round(locked)).all())
        self.assertIn("ˈɜ", [name for name, _, _ in places])
        self.assertNotIn(",", [name for name, _, _ in places])
        for at, (name, place, length) in enumerate(places):
            self.assertEqual(places[at - place], (name, 0, length))

    def test_every_answer_has_phonemes_that_have_codes(self) -> None:
        said = phonemes.of("Reykjavik, 42! Who's there? Yes: the zebra; the fjord.")
        self.assertTrue(set(said) <= set(phonemes.IDS))
        self.assertEqual([mark for mark in said if mark in phonemes.MARKS], list(",!?:;."))
        for segment in phonemes.segments(said):
            self.assertLess(codes.code(phonemes.name("".join(said[at] for at in segment))), CODES)

    def test_a_spelled_word_is_read_between_pauses(self) -> None:
        self.assertEqual(voice.aloud("Sun is spelled S, U, N."), "Sun, is spelled, S, U, N.")
        for text in ("I can add numbers, name capitals, spell words.", "Anna, A is a letter.", "Your name is Anna."):
            self.assertEqual(voice.aloud(text), text)

    def test_a_sentence_begins_with_an_i_that_is_heard(self) -> None:
        for text, said in (
            ("I am fine.", "ˈI æm fˈIn."),
            ("Yes, I can.", "jˈɛs, I kˈæn."),
            ("It is cake. I will remember.", "ɪɾ ɪz kˈAk. ˈI wɪl ɹᵻmˈɛmbəɹ."),
            ("Iceland is cold.", "ˈIslənd ɪz kˈOld."),
        ):
            self.assertEqual(voice.clear(phonemes.of(text)), said)

    def test_words_that_are_read_wrong_are_mended(self) -> None:
        self.assertIn("ɹˈAkjəvˌɪk", voice.clear(phonemes.of("The capital of Iceland is Reykjavik.")))
        self.assertTrue(voice.clear(phonemes.of("A dog says woof.")).endswith("wˈʊf."))

    def test_sounds_and_young_of_animals_are_said_slower(self) -> None:
        made = voice.Voice(sound=False)
        for text in ("A cow says moo.", "A baby horse is a foal."):
            slow = len(made.plan(text).codes)
            with unittest.mock.patch.object(voice, "SLOWER", 1.0):
                self.assertGreater(slow, 1.05 * len(made.plan(text).codes), text)
        for text in ("Yes, I can hear you.", "A week has seven days.", "A banana is yellow."):
            self.assertEqual(voice.pace(text), 1.0)

    def test_accents_differ_as_the_teacher_learnt_them(self) -> None:
        self.assertEqual(phonemes.of("Four birds."), "fˈɔɹ bˈɜɹdz.")
        self.assertEqual(phonemes.of("Four birds.", phonemes.BRITISH), "fˈɔː bˈɜːdz.")

    def test_codes_say_what_comes_and_how(self) -> None:
        places = [("", 0, 1), ("h", 0, 1), ("ˈI", 0, 2), ("ˈI", 1, 2)]
        pitch = np.array([[5] * 6, [5, 5, 5, 5, 200, 200], [200] * 6, [250] * 6], float)
        loudness = np.linspace(-9, 9, 24).reshape(4, 6)
        made = codes.of(places, pitch, loudness)
        self.assertEqual([codes.PHONEMES[k] for k in made[:, 0]], ["", "h", "ˈI", "ˈI"])
        self.assertEqual([codes.PHONEMES[k] for k in made[:, 1]], ["h", "ˈI", "", ""])
        self.assertEqual(made[:, 2].tolist(), [0, 0, 1, codes.LENGTHS + 1])
        self.assertEqual(made[:, 3].tolist(), [16, 16, 16, 20])  # 200 Hz are 16 periods in 80 ms
        self.assertEqual((made[:, 4:] % codes.VOICED).tolist(), [[0, 0], [0, 2], [3, 3], [3, 3]])
        levels = (made[:, 4:] // codes.VOICED).flatten()
        self.assertTrue((np.diff(levels) >= 0).all() and levels[0] == 0 and levels[-1] > 50)
        self.assertTrue((made.max(0) < codes.SIZES).all())

    def test_spoiled_codes_are_codes_and_most_are_right(self) -> None:
        torch.manual_seed(2)
        right = torch.stack([torch.randint(0, size, (200, 12)) for size in codes.SIZES], -1)
        heard = codec_train.spoiled(right)
        self.assertTrue(((heard >= 0) & (heard < torch.tensor(codes.SIZES))).all())
        wrong = (heard != right).float()
        self.assertTrue((wrong.mean((0, 1)) > 0).all() and (wrong.mean((0, 1)) < 0.15).all())
        # The pitch is off by a period or two.
        self.assertLessEqual((heard - right)[..., 3].abs().max(), 2)
        self.assertAlmostEqual((wrong.amax((1, 2)) == 0).float().mean().item(), codec_train.UNSPOILED, delta=0.1)

    def test_the_talker_learns_what_is_said_most_and_spelled_words_most(self) -> None:
        never, rare, common = (
            "Nobody says this.",
            "Thirty one plus forty two is seventy three.",
            "Hello! How can I help you?",
        )
        spelled = "Nest is spelled N, E, S, T."
        often = dict(zip([never, rare, common, spelled], answers.given([never, rare, common, spelled]), strict=True))
        self.assertEqual(often[never], 1)
        self.assertGreater(often[common], 10 * often[rare])
        talks = conversations(30_000, seed=23)
        told = sum(turn.answer == spelled for talk in talks for turn in talk.turns)
        self.assertEqual(often[spelled], 3 * (1 + told))

    def test_excerpts_come_as_often_as_their_sentences_are_said(self) -> None:
        lengths = torch.tensor([20, 15, 40, 13])
        starts = lengths.cumsum(0) - lengths
        sentence = torch.repeat_interleave(torch.arange(4), lengths)
        # A frame's first code says whose it is, its second where it is.
        frames = torch.stack([sentence, torch.arange(len(sentence)) - starts[sentence]], 1)
        data = codec_train.Targets(
            torch.zeros(len(frames) * FRAME), frames, None, starts, torch.tensor([1.0, 6.0, 1.0, 0.0])
        )
        torch.manual_seed(2)
        wave, found, opening = data.excerpts(800)
        self.assertEqual(
            (wave.shape, found.shape, opening), ((800, codec_train.WINDOW * FRAME), (800, codec_train.WINDOW, 2), 400)
        )
        self.assertTrue((found[:opening, 0, 1] == 0).all())
        shares = torch.bincount(found[:opening, 0, 0], minlength=4) / opening
        torch.testing.assert_close(shares, torch.tensor([1 / 8, 6 / 8, 1 / 8, 0.0]), atol=0.06, rtol=0)
        # Of the others the first frames tell: 20, 6 * 15 and 40 of 150.
        shares = torch.bincount(found[opening:, 0, 0], minlength=4) / opening
        torch.testing.assert_close(shares, torch.tensor([20, 90, 40, 0.0]) / 150, atol=0.06, rtol=0)
        # Whole excerpts are the talker's, where there is what it says.
        _, found, _ = replace(data, aligned=frames + 100).excerpts(800)
        own = found[:, :, 0] >= 100
        self.assertTrue((own.all(1) | ~own.any(1)).all())
        self.assertAlmostEqual(own[:, 0].float().mean().item(), codec_train.ALIGNED, delta=0.06)

    def test_an_envelope_is_of_what_is_said_not_of_its_fine_structure(self) -> None:
        torch.manual_seed(2)
        one, other = torch.randn(2, 1, 24_000)
        muffled = torch.nn.functional.avg_pool1d(one[None], 9, 1, 4)[0]
        distance, alike = spectra.Distance(), torch.ones(1, 13)
        mel, envelope, _, _ = distance(one, other, alike)
        # Four distances of magnitudes, and one of power, of which each logarithm is twice as large.
        self.assertLess(envelope / 2, 0.7 * mel / 4)
        self.assertGreater(distance(one, muffled, alike)[1], 2 * envelope)
        self.assertEqual(distance(one, one, alike)[1], 0)

    def test_stops_count_more_than_what_is_around_them(self) -> None:
        said = torch.zeros(1, 4, CODEBOOKS, dtype=torch.long)
        said[0, :, 0] = torch.tensor([codes.code(phoneme) for phoneme in ("", "k", "ˈA", "ʧ")])
        counts = codec_train.importance(said)
        self.assertEqual(counts.tolist(), [[1, codec_train.STOPPED, 1, codec_train.STOPPED]])
        # A quarter of a frame is off, in the second frame or in the third.
        off = torch.zeros(2, 17)
        off[0, 5], off[1, 9] = 1, 1
        stop, vowel = (spectra.weighted(each[None], counts, FRAME // 4) for each in off)
        torch.testing.assert_close(stop, codec_train.STOPPED * vowel)
        torch.testing.assert_close(spectra.weighted(torch.ones(1, 17), counts, FRAME // 4), torch.tensor(1.0))

    def test_flat_formants_differ_by_their_variance(self) -> None:
        torch.manual_seed(2)
        wanted = torch.randn(3, 40, 90)
        variance = spectra.Variance(40)
        torch.testing.assert_close(variance.cosine @ variance.cosine.T, torch.eye(40), atol=1e-5, rtol=0)
        self.assertEqual(variance(wanted, wanted), 0)
        # Half as much of everything is the logarithm of two away, more of it as far again, and silence is like silence.
        torch.testing.assert_close(variance(wanted / 2, wanted), torch.tensor(2.0).log(), atol=0.08, rtol=0)
        torch.testing.assert_close(variance(wanted, wanted / 2), variance(wanted / 2, wanted))
        self.assertLess(variance(wanted * 0.01, torch.zeros_like(wanted)), 0.01)

    def test_pitch_at_analyses_is_the_teachers_own(self) -> None:
        pitch = np.array([5, 5, 200, 210, 220, 230, 240, 5, 5, 5, 5, 5], float)
        found = teacher.at_analyses(pitch, 32)
        self.assertTrue((found[:5] == 0).all() and (found[-12:] == 0).all())
        voiced = found[found > 0]
        self.assertTrue((voiced >= teacher.LOWEST).all() and (voiced <= 240).all())

    def test_a_target_wave_follows_its_pitch(self) -> None:
        """A frame of 12 periods repeats after a twelfth of it; the next frame starts with a pulse again."""
        counts = np.array([12, 12, 12])
        power = np.ones((3 * teacher.PER_FRAME + 1, teacher.FFT // 2 + 1))
        pitch = np.full(len(power), 150.0)
        made = teacher.pulses(pitch, power, np.full_like(power, 1e-3), counts)
        period = FRAME // 12
        np.testing.assert_allclose(made[FRAME : 2 * FRAME - period], made[FRAME + period : 2 * FRAME], atol=1e-6)
        np.testing.assert_allclose(made[FRAME : 2 * FRAME], made[2 * FRAME : 3 * FRAME], atol=1e-6)

    def test_the_quick_activation_is_the_references(self) -> None:
        torch.manual_seed(2)
        reference = Qwen3OmniMoeSnakeBeta(5)
        torch.nn.init.normal_(reference.alpha, 0, 0.5)
        torch.nn.init.normal_(reference.beta, 0, 0.5)
        quick = snake.Snake(reference)
        x = torch.randn(2, 5, 40, requires_grad=True)
        towards = torch.randn(2, 5, 40)
        found = [
            torch.autograd.grad((made(x) * towards).sum(), (x, reference.alpha, reference.beta))
            for made in (reference, quick)
        ]
        torch.testing.assert_close(reference(x), quick(x))
        for expected, got in zip(*found, strict=True):
            torch.testing.assert_close(expected, got, rtol=1e-4, atol=1e-5)

    def test_the_codecs_sound_is_the_references(self) -> None:
        """With the codes' vectors where the reference keeps its embeddings, of which it takes the mean."""
        torch.manual_seed(3)
        codec = Codec().eval()
        reference = Qwen3OmniMoeCode2Wav._from_config(config.code2wav()).eval()
        left = reference.load_state_dict(codec.decoder.state_dict(), strict=False)
        self.assertEqual((left.missing_keys, left.unexpected_keys), (["code_embedding.weight"], []))
        said = torch.randint(0, CODES, (1, 5, CODEBOOKS))
        with torch.no_grad():
            reference.code_embedding.weight.copy_(codec.codes.weight * CODEBOOKS)
            expected = reference(said.transpose(1, 2)).squeeze(1)
            torch.testing.assert_close(codec.decode(said), expected, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    unittest.main()
