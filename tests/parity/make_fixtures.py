"""Makes the parity fixtures with the reference implementation: `python make_fixtures.py [NAME ...]`.

With `--check` it makes nothing: it runs the committed checkpoints again and compares with the committed tensors. See
README.md for what each fixture holds and how to install what this needs.
"""

import argparse
import json
import shutil
import warnings
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen3OmniMoeForConditionalGeneration,
    WhisperFeatureExtractor,
)

import checks
import runs
import sampling
import search
import signals
import tokens
from configs import FIXTURES, Fixture
from runs import Question

FOLDER = Path(__file__).parent / "fixtures"
VERSIONS = {"transformers": transformers.__version__, "torch": torch.__version__}


def questions(fixture: Fixture, extractor: WhisperFeatureExtractor) -> list[Question]:
    made = []
    for index, samples in enumerate(fixture.turns):
        audio = signals.speech(samples, seed=fixture.audio_seed + index)
        mel = signals.mel_streaming(extractor, audio, fixture.audio["n_window_infer"])
        reference = signals.mel_reference(extractor, audio)
        assert mel.shape == reference.shape == (fixture.audio["num_mel_bins"], samples // extractor.hop_length)
        made.append(Question(torch.from_numpy(audio), mel, torch.as_tensor(reference)))
    return made


def save_checkpoint(model, fixture: Fixture, tokenizer, extractor, folder: Path) -> None:
    """The files of a published checkpoint."""
    special = {
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "audio_token": "<|audio_pad|>",
        "audio_bos_token": "<|audio_start|>",
        "audio_eos_token": "<|audio_end|>",
    }
    model = model.to(getattr(torch, fixture.dtype))
    model.generation_config = GenerationConfig(
        eos_token_id=tokens.special(tokenizer, special["eos_token"]),
        pad_token_id=tokens.special(tokenizer, special["pad_token"]),
    )
    model.save_pretrained(folder, max_shard_size=fixture.max_shard_size)
    extractor.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")


def tensors(model, turns: list[runs.Turn], asked: list[Question]) -> dict[str, torch.Tensor]:
    """The compared tensors under the names that README.md lists."""
    out = {}
    for index, (turn, question) in enumerate(zip(turns, asked, strict=True)):
        named = {
            "audio": question.audio,
            "mel": question.mel,
            "mel_reference": question.mel_reference,
            "audio_tower": turn.audio_tower,
            "thinker.prompt_ids": torch.tensor(turn.prompt_ids),
            "thinker.tokens": torch.tensor(turn.tokens),
            "thinker.logits": turn.thinker_logits,
            "thinker.hidden": turn.thinker_hidden,
            "talker.prompt": turn.talker_prompt,
            "talker.trailing": turn.talker_trailing,
            "talker.logits": turn.talker_logits,
            "talker.hidden": turn.talker_hidden,
            "predictor.logits": turn.predictor_logits,
            "codes": turn.codes,
            "waveform": runs.decode(model, turn.codes),
        }
        for name, value in named.items():
            dtype = torch.float32 if value.is_floating_point() else torch.int32
            out[f"turn{index}.{name}"] = value.to(dtype).contiguous()
    return out


def deviations(expected: dict[str, torch.Tensor]) -> dict[str, float]:
    """The standard deviation of each compared float tensor; all but the question itself must be audible."""
    stds = {name: round(t.std().item(), 4) for name, t in expected.items() if t.is_floating_point()}
    for name, std in stds.items():
        assert name.endswith(".audio") or std >= checks.MIN_STD, f"{name}: {std}"
    return stds


def describe(model, fixture: Fixture, seed: int, turns, asked, tokenizer, expected) -> dict:
    zeroed = checks.weakest_blocks(model, fixture, turns, asked)
    for part, weakest in zeroed.items():
        print(f"{fixture.name}: {part}: {weakest}")
        assert weakest["change"] >= checks.MIN_CHANGE
    config = model.config
    wave = [expected[f"turn{i}.waveform"] for i in range(len(turns))]
    return {
        "versions": VERSIONS,
        "seed": seed,
        "dtype": fixture.dtype,
        "settings": {
            "speaker": fixture.speaker,
            "system": fixture.system,
            "thinker_do_sample": False,
            "talker_do_sample": False,
            "talker_repetition_penalty": fixture.talker_repetition_penalty,
            "thinker_eos_token_id": config.im_end_token_id,
            **fixture.limits,
        },
        "turns": [
            {
                "text": tokenizer.decode(turn.tokens),
                "audio_samples": len(question.audio),
                "mel_frames": question.mel.shape[1],
                "audio_tokens": len(turn.audio_tower),
                "prompt_tokens": len(turn.prompt_ids),
                "answer_tokens": len(turn.tokens),
                "talker_prompt_rows": len(turn.talker_prompt),
                "frames": turn.codes.shape[1],
                "samples": len(sound),
                "clipped_samples": int((sound.abs() >= 1).sum()),
                "top_two_gap": {
                    "thinker": search.gap(turn.thinker_logits),
                    "talker": search.gap(turn.talker_scores),
                    "predictor": search.gap(turn.predictor_logits),
                },
            }
            for turn, question, sound in zip(turns, asked, wave, strict=True)
        ],
        "distinct_tokens": len({token for turn in turns for token in turn.tokens}),
        "distinct_codes": len({code for turn in turns for code in turn.talker_codes}),
        "router_gap": checks.router_gap(model, fixture, turns, asked),
        "weakest_zeroed_blocks": zeroed,
        "window_ignored": checks.windows_matter(model, fixture, turns, asked),
        "std": deviations(expected),
    }


def load(folder: Path):
    """A checkpoint as a reader gets it, in f32."""
    return Qwen3OmniMoeForConditionalGeneration.from_pretrained(folder / "checkpoint", dtype=torch.float32).eval()


def make(fixture: Fixture) -> None:
    tokenizer = tokens.build(fixture.vocab)
    extractor = WhisperFeatureExtractor(
        feature_size=fixture.audio["num_mel_bins"], sampling_rate=signals.SAMPLE_RATE, hop_length=160, n_fft=400
    )
    asked = questions(fixture, extractor)
    model, seed = search.search(fixture, tokenizer, asked)

    folder = FOLDER / fixture.name
    shutil.rmtree(folder, ignore_errors=True)
    save_checkpoint(model, fixture, tokenizer, extractor, folder / "checkpoint")

    # All outputs come from the saved checkpoint, not from the model in memory.
    model = load(folder)
    turns = runs.converse(model, fixture, tokenizer, asked)
    stop = tokens.special(tokenizer, "<|im_end|>")
    fault = search.problem(fixture, turns, stop, model.config.talker_config.codec_eos_token_id)
    assert fault is None, fault
    expected = tensors(model, turns, asked)
    summary = describe(model, fixture, seed, turns, asked, tokenizer, expected)
    save_file(expected, folder / "expected.safetensors")
    (folder / "expected.json").write_text(json.dumps(summary, indent=1) + "\n")
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{fixture.name}: seed {seed}, {size / 1e6:.2f} MB")
    for turn in summary["turns"]:
        print(f"  {turn}")


def check(fixture: Fixture) -> None:
    """Runs a committed checkpoint again, with nothing but its own files, and compares."""
    folder = FOLDER / fixture.name
    expected = load_file(folder / "expected.safetensors")
    # The tokenizer and the front end too are taken from the folder.
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder / "checkpoint").backend_tokenizer
    extractor = WhisperFeatureExtractor.from_pretrained(folder / "checkpoint")
    asked = questions(fixture, extractor)
    model = load(folder)
    turns = runs.converse(model, fixture, tokenizer, asked)
    now = tensors(model, turns, asked)
    assert now.keys() == expected.keys()
    worst = 0.0
    for name, tensor in expected.items():
        if tensor.is_floating_point():
            worst = max(worst, checks.change([now[name]], [tensor]))
        else:
            assert torch.equal(now[name], tensor), name
    assert worst < 1e-5, worst
    print(f"{fixture.name}: {len(expected)} tensors as committed, within {worst:.1e} of the largest value of each")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare the committed fixtures instead of making any")
    parser.add_argument("names", nargs="*", help="which fixtures (default: all)")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", message="Passing `repetition_penalty` with `inputs_embeds`")
    for fixture in FIXTURES:
        if not arguments.names or fixture.name in arguments.names:
            (check if arguments.check else make)(fixture)
    if not arguments.check and (not arguments.names or "sampling" in arguments.names):
        sampling.make(FOLDER / "sampling", VERSIONS)


if __name__ == "__main__":
    main()
