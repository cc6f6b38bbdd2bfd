"""The log-mel of training is the engine's: both are held to the same fixture."""

import unittest
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from demo_recipe import augment, features

FIXTURE = Path(__file__).parents[4] / "engine" / "tests" / "data" / "log_mel.safetensors"


def joined(windows: features.Windows) -> torch.Tensor:
    return torch.cat([mel[:frames] for mel, frames in zip(windows.mel, windows.frames, strict=True)])


class LogMel(unittest.TestCase):
    def setUp(self) -> None:
        self.expected = load_file(FIXTURE)
        self.signal = self.expected["signal"].numpy()

    def test_a_turn_of_one_window_is_the_references_spectrogram(self) -> None:
        for length in (160, 200, 201, 399, 3_999, 4_000, 12_123):
            found = joined(features.log_mel([self.signal[:length]]))
            torch.testing.assert_close(found.flatten(), self.expected[f"whole.{length}"].flatten(), atol=1e-4, rtol=0)

    def test_each_window_is_clamped_against_the_maximum_so_far(self) -> None:
        found = joined(features.log_mel([self.signal], window=20))
        torch.testing.assert_close(found.flatten(), self.expected["streamed.20"].flatten(), atol=1e-4, rtol=0)

    def test_turns_side_by_side_do_not_change_each_other(self) -> None:
        turns = [self.signal, self.signal[:4_000], np.zeros(16_160, np.float32), self.signal[2_000:]]
        together = features.log_mel(turns)
        alone = torch.cat([features.log_mel([turn]).mel for turn in turns])
        torch.testing.assert_close(together.mel, alone)
        self.assertEqual(together.frames.tolist(), [75, 25, 100, 1, 63])
        self.assertEqual(together.turn.tolist(), [0, 1, 2, 2, 3])
        self.assertEqual(together.first.tolist(), [True, True, True, False, True])

    def test_a_full_window_is_thirteen_tokens(self) -> None:
        self.assertEqual(
            [features.tokens(frames) for frames in (1, 8, 9, 99, 100, 101, 250)], [1, 1, 2, 13, 13, 14, 33]
        )


class Augment(unittest.TestCase):
    def test_noise_is_as_loud_as_asked(self) -> None:
        random = np.random.default_rng(1)
        speech = np.sin(np.arange(16_000) / 5).astype(np.float32)
        noise = augment.pink(random, 16_000)
        added = augment.with_noise(speech, noise, 15.0, augment.power(speech)) - speech
        self.assertAlmostEqual(10 * np.log10(np.mean(speech**2) / np.mean(added**2)), 15.0, delta=0.2)

    def test_a_telephone_keeps_its_band_only(self) -> None:
        time = np.arange(16_000) / 16_000
        for hertz, kept in ((100, 0.0), (1_000, 1.0), (6_000, 0.0)):
            tone = np.sin(2 * np.pi * hertz * time).astype(np.float32)
            mixed = tone + np.sin(2 * np.pi * 1_500 * time).astype(np.float32)
            spectrum = np.abs(np.fft.rfft(augment.telephone(mixed))) / 8_000
            self.assertAlmostEqual(spectrum[hertz], kept, delta=0.05)

    def test_a_dull_sound_has_nothing_above_its_limit(self) -> None:
        noise = np.random.default_rng(4).standard_normal(16_000).astype(np.float32)
        spectrum = np.abs(np.fft.rfft(augment.dull(noise, 4_000.0)))
        self.assertLess(spectrum[4_800:].mean(), 0.02 * spectrum[:3_500].mean())
        np.testing.assert_allclose(spectrum[:3_000], np.abs(np.fft.rfft(noise))[:3_000], rtol=0.05, atol=1.0)

    def test_what_comes_out_is_finite_and_within_range(self) -> None:
        random = np.random.default_rng(2)
        voices = [(random.standard_normal(8_000) * 3_000).astype(np.int16) for _ in range(4)]
        change = augment.Augment(random, voices)
        for _ in range(40):
            sound = change(voices[0])
            self.assertTrue(np.isfinite(sound).all() and np.abs(sound).max() <= 1.0 and sound.dtype == np.float32)
            self.assertGreater(len(sound), 6_000)


if __name__ == "__main__":
    unittest.main()
