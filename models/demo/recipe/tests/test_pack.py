"""What travels to a GPU machine: the voice comes out as it went in, and of the wheels only what is needed."""

import tempfile
import unittest
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from demo_recipe import pack, voice


class Voice(unittest.TestCase):
    def test_its_weights_come_back_to_sixteen_bits(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            package = Path(folder) / pack.VOICE
            pack.voice(package)
            packed = sum(path.stat().st_size for path in package.rglob("*.*") if path.suffix != ".json")
            self.assertLess(packed, 0.6 * voice.VOICE.stat().st_size)
            pack.unpack_voice(package)
            before, after = (
                {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}
                for path in (voice.VOICE, package / "data" / voice.VOICE.name)
            )
        self.assertEqual(before.keys(), after.keys())
        for name, wanted in before.items():
            self.assertEqual(wanted.dtype, after[name].dtype, name)
            np.testing.assert_allclose(after[name], wanted, rtol=1e-3, atol=1e-4, err_msg=name)


class Wheels(unittest.TestCase):
    def test_other_languages_and_other_models_stay(self) -> None:
        for name in ("piper/voice.py", "transformers/modeling_utils.py", "transformers/models/qwen3_omni_moe/modeling_qwen3_omni_moe.py"):
            self.assertTrue(pack.wanted(name), name)
        for name in ("piper/hebrew/nakdimon.onnx", "transformers/models/bert/modeling_bert.py", "piper/espeak-ng-data/ru_dict"):
            self.assertFalse(pack.wanted(name), name)
        self.assertTrue(pack.wanted("piper/espeak-ng-data/en_dict"))


if __name__ == "__main__":
    unittest.main()
