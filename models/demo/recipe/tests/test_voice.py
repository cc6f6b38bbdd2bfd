"""The teacher speaks, its speech becomes targets, the codec learns them: each step on four sentences."""

import shutil
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeCode2Wav, Qwen3OmniMoeSnakeBeta

from demo_recipe import answers, codec_train, config, snake, teacher, voice
from demo_recipe.codec import Codec
from demo_recipe.config import CODEBOOKS, CODES, FRAME
from demo_recipe.domain import conversations
from demo_recipe.scale import SMOKE

CPU = torch.device("cpu")


class Steps(unittest.TestCase):
    """One work folder for all: each step starts from what the step before left there."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.work = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.work)
        torch.manual_seed(1)
        torch.set_num_threads(1)
        answers.make(cls.work, SMOKE)
        teacher.make(cls.work, SMOKE)

    def made(self, pattern: str) -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in self.work.glob(pattern)}

    def test_answers_last_whole_frames_each_with_its_phoneme(self) -> None:
        spoken = list(answers.load(self.work))
        self.assertEqual(len(spoken), SMOKE.answers)
        for one in spoken:
            self.assertEqual(len(one.samples), len(one.phonemes) * FRAME)
            self.assertGreater(np.abs(one.samples.astype(int)).max(), 3_000)
            self.assertGreater(sum(bool(phoneme) for phoneme in one.phonemes), 2)

    def test_what_is_there_is_not_made_again(self) -> None:
        before = self.made("answers/*") | self.made("targets/*")
        self.assertEqual(len(before), 3)
        answers.make(self.work, SMOKE)
        teacher.make(self.work, SMOKE)
        self.assertEqual(before, self.made("answers/*") | self.made("targets/*"))

    def test_targets_fit_their_answers(self) -> None:
        (path,) = (self.work / "targets").glob("*.npz")
        kept, said = np.load(path), list(answers.load(self.work))
        self.assertEqual(kept["frames"].tolist(), [len(one.phonemes) for one in said])
        frames = int(kept["frames"].sum())
        self.assertEqual(kept["wave"].shape, (frames * FRAME,))
        self.assertEqual(kept["features"].shape, (frames * teacher.PER_FRAME, teacher.FEATURES))
        for name in ("wave", "features"):
            self.assertTrue(np.isfinite(kept[name]).all())
        self.assertLess(np.abs(kept["features"]).max(), 8)
        # About as loud as the answers, and never clipped.
        level = np.sqrt(np.mean(np.square(kept["wave"].astype(np.float64))))
        spoken = np.concatenate([one.samples for one in said]).astype(np.float64) / 32768
        self.assertAlmostEqual(20 * np.log10(level / np.sqrt(np.mean(spoken**2))), 20 * np.log10(teacher.LEVEL), delta=3)

    def test_a_locked_excitation_is_the_same_each_time(self) -> None:
        samples = next(answers.load(self.work)).samples
        first, again = teacher.locked(samples), teacher.locked(samples)
        for a, b in zip(first, again):
            np.testing.assert_array_equal(a, b)

    def test_natural_targets_are_the_answers_themselves(self) -> None:
        samples = next(answers.load(self.work)).samples
        wave, features = teacher.natural(samples)
        np.testing.assert_allclose(wave, samples / 32768 * teacher.LEVEL, atol=1e-6)
        self.assertEqual(features.shape, (len(samples) // teacher.HOP, teacher.FEATURES))
        self.assertTrue(np.isfinite(features).all())

    def test_the_codec_goes_on_after_a_stop_and_its_codes_keep_their_meaning(self) -> None:
        codec_train.train(self.work, replace(SMOKE, codec_steps=2), CPU)
        self.assertEqual(torch.load(self.work / "codec.pt")["step"], 2)
        codec_train.train(self.work, replace(SMOKE, codec_steps=4), CPU)
        trained = torch.load(self.work / "codec.pt")
        self.assertEqual(trained["step"], 4)
        weights, _ = trained["parts"]["main"]
        # An optimiser that goes on has counted the steps before.
        self.assertEqual({int(state["step"]) for state in trained["parts"]["main"][1]["state"].values()}, {4})
        self.assertTrue(all(value.isfinite().all() for value in weights.values()))
        self.assertTrue(weights["quantizer.started"])
        codec_train.encode(self.work, CPU)
        codes = torch.load(self.work / "codes.pt")
        said = list(answers.load(self.work))
        self.assertEqual([kept["text"] for kept in codes["answers"]], [one.text for one in said])
        for one, kept in zip(said, codes["answers"]):
            self.assertEqual(kept["codes"].shape, (len(one.phonemes), CODEBOOKS))
            self.assertTrue(((kept["codes"] >= 0) & (kept["codes"] < CODES)).all())
            self.assertEqual([codes["phonemes"][k] for k in kept["phonemes"]], one.phonemes)
        # From here on the codes mean what they mean: only the decoder learns.
        codec_train.train(self.work, replace(SMOKE, codec_steps=6), CPU)
        before, after = trained["ema"], torch.load(self.work / "codec.pt")["ema"]
        changed = {name.split(".")[0] for name in before if not before[name].equal(after[name])}
        self.assertIn("decoder", changed)
        self.assertFalse(changed & {"encoder", "quantizer"}, changed)
        codec_train.encode(self.work, CPU)
        for one, other in zip(codes["answers"], torch.load(self.work / "codes.pt")["answers"]):
            self.assertTrue(one["codes"].equal(other["codes"]))


class Rules(unittest.TestCase):
    def test_the_answers_of_every_topic_are_spoken(self) -> None:
        chosen = set(answers.texts(2_000))
        self.assertEqual(len(chosen), 2_000)
        topics = {turn.topic for talk in conversations(3_000, seed=11) for turn in talk.turns}
        heard = {turn.topic for talk in conversations(3_000, seed=11) for turn in talk.turns if turn.answer in chosen}
        self.assertEqual(topics, heard)

    def test_every_phoneme_lasts_whole_codec_frames(self) -> None:
        symbols = list("həlˈoʊ, wˈɜːld.")
        free = np.random.default_rng(1).uniform(0.5, 9, 2 * len(symbols) + 3).astype(np.float32)
        locked, names = voice.lock(symbols, free)
        self.assertEqual(locked.sum(), len(names) * voice.PER_CODEC_FRAME)
        self.assertTrue((locked >= 0).all() and (locked == np.round(locked)).all())
        self.assertIn("ɜː", [name.strip("ˈ") for name in names])
        self.assertNotIn(",", names)

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
        found = [torch.autograd.grad((made(x) * towards).sum(), (x, reference.alpha, reference.beta)) for made in (reference, quick)]
        torch.testing.assert_close(reference(x), quick(x))
        for expected, got in zip(*found):
            torch.testing.assert_close(expected, got, rtol=1e-4, atol=1e-5)

    def test_the_codecs_sound_is_the_references(self) -> None:
        """With the quantizer's codebooks where the reference keeps its embeddings, of which it takes the mean."""
        torch.manual_seed(3)
        codec = Codec(teacher.FEATURES).eval()
        torch.nn.init.normal_(codec.quantizer.codes)
        reference = Qwen3OmniMoeCode2Wav._from_config(config.code2wav()).eval()
        left = reference.load_state_dict(codec.decoder.state_dict(), strict=False)
        self.assertEqual((left.missing_keys, left.unexpected_keys), (["code_embedding.weight"], []))
        codes = torch.randint(0, CODES, (1, 5, CODEBOOKS))
        with torch.no_grad():
            reference.code_embedding.weight.copy_(codec.quantizer.codes.flatten(0, 1) * CODEBOOKS)
            expected = reference(codes.transpose(1, 2)).squeeze(1)
            torch.testing.assert_close(codec.decode(codec.quantizer.decode(codes)), expected, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    unittest.main()
