"""Predicted opinion of listeners on a sound: DNSMOS (P.835) of the PyPI package `speechmos`, whose model takes the
waveform itself.

It was trained on people's votes about recorded speech, clean and noisy, one to five. Synthetic speech is not what it
was made for: it tells a rough voice from a smooth one, not a good melody from a dull one.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from scipy.signal import resample_poly

RATE = 16_000
WINDOW = 144_160  # samples that the model takes
MOST = 100  # sounds that a mean is of
# From the model's output to votes, as the package has it.
OVERALL = np.polynomial.Polynomial((0.04602535, 1.11546468, -0.06766283))


class Opinion:
    """The predictor. One thread."""

    def __init__(self) -> None:
        import onnxruntime

        found = find_spec("speechmos")
        if found is None or not found.submodule_search_locations:
            raise SystemExit("there is no package speechmos: scripts/setup.sh recogniser")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        model = Path(found.submodule_search_locations[0]) / "dnsmos_models/sig_bak_ovr.onnx"
        self._model = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])

    def mean(self, sounds: Sequence[np.ndarray], rate: int) -> float:
        """The mean overall vote, 1 to 5, of at most `MOST` of some sounds, evenly spread; f32 in -1..1."""
        sounds = sounds[:: -(-len(sounds) // MOST) or 1]
        return float(np.mean([self.of(sound, rate) for sound in sounds])) if len(sounds) else float("nan")

    def of(self, sound: np.ndarray, rate: int) -> float:
        """The overall vote of one sound; what is shorter than the model's nine seconds is repeated, as the package
        does.
        """
        heard = np.clip(resample_poly(sound, RATE, rate), -1, 1).astype(np.float32)
        if not len(heard):
            return float("nan")
        if len(heard) < WINDOW:
            heard = np.tile(heard, -(-WINDOW // len(heard)))[:WINDOW]
        starts = range(0, len(heard) - WINDOW + 1, RATE)
        votes = [self._model.run(None, {"input_1": heard[None, at : at + WINDOW]})[0][0, 2] for at in starts]
        return float(OVERALL(np.mean(votes)))
