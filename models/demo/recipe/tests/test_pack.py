"""Contents of the archive for a GPU machine: the voices, and of the wheels only what is needed."""

import tempfile
import unittest
import unittest.mock
from pathlib import Path

from demo_recipe import kokoro, pack


class Voices(unittest.TestCase):
    def test_the_model_and_its_voices_travel(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            there, out = Path(folder) / "there", Path(folder) / "out"
            (there / "voices").mkdir(parents=True)
            for name in ("model.onnx", "voices/af_heart.bin"):
                (there / name).write_bytes(b"x")
            with unittest.mock.patch.object(kokoro, "FOLDER", there):
                pack.voices(out)
            self.assertEqual(
                {str(path.relative_to(out)) for path in out.rglob("*.*")}, {"model.onnx", "voices/af_heart.bin"}
            )

    def test_without_the_model_it_says_what_to_do(self) -> None:
        with (
            tempfile.TemporaryDirectory() as folder,
            unittest.mock.patch.object(kokoro, "FOLDER", Path(folder)),
            self.assertRaisesRegex(SystemExit, "setup.sh"),
        ):
            pack.voices(Path(folder) / "out")


class Wheels(unittest.TestCase):
    def test_other_models_stay(self) -> None:
        for name in ("transformers/modeling_utils.py", "transformers/models/qwen3_omni_moe/modeling_qwen3_omni_moe.py"):
            self.assertTrue(pack.wanted(name), name)
        for name in ("transformers/models/bert/modeling_bert.py", "transformers/cli/serve.py"):
            self.assertFalse(pack.wanted(name), name)


if __name__ == "__main__":
    unittest.main()
