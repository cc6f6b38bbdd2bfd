"""Untrained parts of the right shape become a checkpoint that the reference implementation loads whole."""

import json
import shutil
import tempfile
import unittest
from pathlib import Path

import torch
from safetensors import safe_open
from transformers import AutoConfig
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeForConditionalGeneration

from demo_recipe import config, export, keep, talker, tokenizer
from demo_recipe.codec import Codec
from demo_recipe.config import CODEBOOKS, CODES
from demo_recipe.thinker_model import Thinker, warm_embeddings

MEGABYTES = 24  # that the checkpoint may have in the repository


class Export(unittest.TestCase):
    work: Path
    out: Path
    codec: Codec

    @classmethod
    def setUpClass(cls) -> None:
        cls.work = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.work)
        torch.manual_seed(1)
        torch.set_num_threads(1)
        words, embeddings = tokenizer.load(cls.work), tokenizer.embeddings(cls.work)
        cls.codec = Codec().eval()
        thinker = Thinker(words, embeddings)
        torch.save({"model": thinker.reference.state_dict()}, cls.work / "thinker.pt")
        torch.save({"ema": talker.Talker(words, embeddings).state_dict()}, cls.work / "talker.pt")
        torch.save({"ema": cls.codec.state_dict()}, cls.work / "codec.pt")
        cls.out = cls.work / "checkpoint"
        export.make(cls.work, cls.out)

    def test_it_is_a_checkpoint_of_the_family(self) -> None:
        self.assertEqual(AutoConfig.from_pretrained(self.out).model_type, "qwen3_omni_moe")
        _, info = Qwen3OmniMoeForConditionalGeneration.from_pretrained(
            self.out, dtype=torch.float32, output_loading_info=True
        )
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            self.assertFalse(info[kind], kind)
        for name in (
            "config.json",
            "generation_config.json",
            "preprocessor_config.json",
            "tokenizer.json",
            "tokenizer_config.json",
        ):
            json.loads((self.out / name).read_text())

    def test_it_is_small_enough_and_all_bfloat16(self) -> None:
        self.assertLessEqual((self.out / "model.safetensors").stat().st_size, MEGABYTES * 1_000_000)
        with safe_open(self.out / "model.safetensors", "pt") as weights:
            for name in weights.keys():  # noqa: SIM118 (the file is no dictionary)
                self.assertEqual(weights.get_slice(name).get_dtype(), "BF16", name)

    def test_its_codec_sounds_as_the_one_that_was_trained(self) -> None:
        model = Qwen3OmniMoeForConditionalGeneration.from_pretrained(self.out, dtype=torch.float32).eval()
        codes = torch.randint(0, CODES, (1, 6, CODEBOOKS))
        with torch.no_grad():
            served = model.code2wav(codes.transpose(1, 2)).squeeze(1)
            trained = self.codec.decode(codes)
        self.assertEqual(served.shape, trained.shape)
        # bf16 weights: the same sound to about one part in a hundred.
        self.assertLess((served - trained).square().mean().sqrt() / trained.square().mean().sqrt(), 0.05)

    def test_a_missing_part_names_its_step(self) -> None:
        with tempfile.TemporaryDirectory() as empty:
            work = Path(empty)
            shutil.copy(self.work / "tokenizer.json", work)
            with self.assertRaisesRegex(SystemExit, "thinker"):
                export.make(work, work / "checkpoint")

    def test_a_kept_thinker_is_exported_unchanged(self) -> None:
        with tempfile.TemporaryDirectory() as empty:
            work = Path(empty)
            keep.make(work, self.out)
            for part in ("talker.pt", "codec.pt"):
                shutil.copy(self.work / part, work)
            export.make(work, work / "checkpoint")
            for name in ("model.safetensors", "tokenizer.json", "config.json"):
                self.assertEqual((work / "checkpoint" / name).read_bytes(), (self.out / name).read_bytes(), name)

    def test_a_thinker_that_was_trained_alone_goes_out_with_the_voice_of_another_checkpoint(self) -> None:
        with tempfile.TemporaryDirectory() as empty:
            work = Path(empty)
            warm_embeddings(work, self.out)
            words = tokenizer.load(work)
            begun = Thinker(words, tokenizer.embeddings(work))
            begun.warm_start(self.out, words)
            torch.save({"model": begun.reference.state_dict()}, work / "thinker.pt")
            export.make(work, work / "checkpoint", self.out)
            ours, theirs = (
                Qwen3OmniMoeForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).state_dict()
                for folder in (work / "checkpoint", self.out)
            )
            for name in theirs:
                if "visual" not in name:
                    self.assertTrue(torch.equal(ours[name], theirs[name]), name)
            (work / "tokenizer.json").write_text("{}")
            with self.assertRaisesRegex(SystemExit, "tokens"):
                export.finished_parts(self.out, work)

    def test_a_kept_thinker_does_not_meet_other_tokens(self) -> None:
        with tempfile.TemporaryDirectory() as empty:
            work = Path(empty)
            (work / "tokenizer.json").write_text("{}")
            with self.assertRaisesRegex(SystemExit, "tokenizer"):
                keep.make(work, self.out)

    def test_training_begins_with_the_codes_of_its_own_voice(self) -> None:
        begun = Codec()
        begun.warm_start(self.out)
        codes = torch.randint(0, CODES, (1, 6, CODEBOOKS))
        with torch.no_grad():
            heard, trained = begun.eval().decode(codes), self.codec.decode(codes)
        self.assertLess((heard - trained).square().mean().sqrt() / trained.square().mean().sqrt(), 0.05)
        words = tokenizer.load(self.work)
        talks = talker.Talker(words, tokenizer.embeddings(self.work))
        talks.warm_start(self.out, words)
        kept = Qwen3OmniMoeForConditionalGeneration.from_pretrained(self.out, dtype=torch.float32).talker.state_dict()
        for name, value in talks.model.state_dict().items():
            self.assertTrue(torch.equal(value, kept[name]), name)

    def test_training_begins_with_codes_of_its_own_for_another_voice(self) -> None:
        with tempfile.TemporaryDirectory() as other:
            folder = Path(other) / "checkpoint"
            shutil.copytree(self.out, folder)
            settings = json.loads((folder / "config.json").read_text())
            settings["talker_config"]["speaker_id"] = {
                "another": settings["talker_config"]["speaker_id"][config.SPEAKER]
            }
            (folder / "config.json").write_text(json.dumps(settings))
            begun = Codec()
            before = begun.codes.weight.clone()
            begun.warm_start(folder)
            self.assertTrue(torch.equal(begun.codes.weight, before))
            inside = "decoder.0.conv.weight"
            self.assertFalse(torch.equal(begun.decoder.state_dict()[inside], Codec().decoder.state_dict()[inside]))

    def test_its_speaker_is_named(self) -> None:
        kept = json.loads((self.out / "config.json").read_text())
        self.assertEqual(list(kept["talker_config"]["speaker_id"]), [config.SPEAKER])


if __name__ == "__main__":
    unittest.main()
