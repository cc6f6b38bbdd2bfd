"""Makes the parity fixtures of Qwen3-TTS with its reference implementation: `python make_fixtures.py [NAME ...]`.

With `--check` it makes nothing: it runs the committed checkpoints again and compares with the committed tensors.
"""

import argparse
import json
import shutil
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

import configs
import draw
import runs
import tokens
import weights
from configs import FIXTURES, Fixture
from reference import (
    Qwen3TTSConfig,
    Qwen3TTSForConditionalGeneration,
    Qwen3TTSTokenizerV2Config,
    Qwen3TTSTokenizerV2Model,
)

FOLDER = Path(__file__).parent.parent / "fixtures"
VERSIONS = {"qwen-tts": version("qwen-tts"), "transformers": transformers.__version__, "torch": torch.__version__}
# How far the best choice leads at least, so that another order of summing makes none differently.
MIN_GAP = 5e-3
# The same for the nearest entry of a quantizer.
MIN_NEAR = 1e-3
# Codes of codebook 0 that the runs of a fixture have at least, together.
MIN_DISTINCT = 20


def gap(scores: torch.Tensor) -> float:
    """The smallest lead of the best over the second best, over all rows."""
    best, second = scores.flatten(0, -2).topk(2, dim=-1).values.unbind(-1)
    return (best - second).min().item()


def models(fixture: Fixture, tokenizer):
    config = configs.build(fixture, tokenizer)
    model = Qwen3TTSForConditionalGeneration._from_config(config).eval()
    codec = Qwen3TTSTokenizerV2Model._from_config(configs.build_codec(fixture)).eval()
    return model, codec


def drawn(fixture: Fixture, tokenizer, seed: int):
    """Weights drawn from `seed`, rounded to the checkpoint's dtype, the row of the end of speech still zero."""
    model, codec = models(fixture, tokenizer)
    draw.redraw(model, seed)
    draw.redraw(codec, seed + 1)
    draw.calibrate_waveform(codec, seed)
    with torch.no_grad():
        model.talker.codec_head.weight[runs.stop(model)] = 0
    dtype = getattr(torch, fixture.dtype)
    for part in (model, codec):
        weights.round_to(part, dtype)
    for buffer in codec.encoder.quantizer.buffers():
        buffer.copy_(buffer.to(dtype).float())
    return model, codec


def set_stop(model, codec, fixture: Fixture, tokenizer) -> str | None:
    """Sets the row of the end of speech so that each run ends by itself where it should; or says why it cannot."""
    evidence, said = [], set()
    for run in fixture.runs:
        made = runs.ask(model, codec, fixture, tokenizer, run, endless=run.frames + 1)
        if gap(made.scores[:-1]) < MIN_GAP:
            return "the talker is undecided"
        if gap(made.predictor_logits) < MIN_GAP:
            return "the code predictor is undecided"
        evidence.append((made.hidden, made.scores.max(-1).values))
        said |= set(made.first[:-1])
    if len(said) < MIN_DISTINCT:
        return f"only {len(said)} distinct codes"
    row = weights.stop_row(evidence)
    if row is None:
        return "no row ends the speech"
    with torch.no_grad():
        model.talker.codec_head.weight[runs.stop(model)] = row.to(getattr(torch, fixture.dtype)).float()
    return None


def fault(model, fixture: Fixture, made: list[runs.Made]) -> str | None:
    for run, one in zip(fixture.runs, made, strict=True):
        if one.first[-1] != runs.stop(model) or one.codes.shape[1] != run.frames:
            return f"{run.text!r} took {one.codes.shape[1]} frames"
        if one.voice is not None and one.voice.gap < MIN_NEAR:
            return f"{run.text!r}: the quantizer is undecided"
        if min(gap(one.scores[2:]), gap(one.predictor_logits)) < MIN_GAP:
            return f"{run.text!r} is undecided"
    return None


def search(fixture: Fixture, tokenizer, tries: int = 500):
    for seed in range(fixture.seed, fixture.seed + tries):
        model, codec = drawn(fixture, tokenizer, seed)
        problem = set_stop(model, codec, fixture, tokenizer)
        if problem is None:
            problem = fault(model, fixture, [runs.ask(model, codec, fixture, tokenizer, run) for run in fixture.runs])
        if problem is None:
            return model, codec, seed
        print(f"{fixture.name}: seed {seed}: {problem}", flush=True)
    raise SystemExit(f"{fixture.name}: no seed of {tries} will do")


def eager_frames(model, codec, fixture: Fixture, tokenizer) -> int:
    """Frames of an answer whose model wants to end at once."""
    row = model.talker.codec_head.weight[runs.stop(model)]
    kept, run = row.clone(), fixture.runs[0]
    with torch.no_grad():
        # The end's logit grows with the square of each hidden row, above all others.
        made = runs.ask(model, codec, fixture, tokenizer, run)
        row.copy_(made.hidden[:3].sum(0) * 10)
        frames = runs.ask(model, codec, fixture, tokenizer, run).codes.shape[1]
        row.copy_(kept)
    return frames


def tensors(codec, made: list[runs.Made]) -> dict[str, torch.Tensor]:
    """The compared tensors."""
    out = {}
    for index, one in enumerate(made):
        named = {
            "text_ids": torch.tensor(one.text_ids, dtype=torch.int32),
            "instruct_ids": torch.tensor(one.instruct_ids, dtype=torch.int32),
            "talker.prompt": one.prompt,
            "talker.trailing": one.trailing,
            "talker.logits": one.logits,
            "talker.hidden": one.hidden,
            "predictor.logits": one.predictor_logits,
            "codes": one.codes,
            "waveform": runs.decode(codec, one),
        }
        if one.voice is not None:
            named |= {
                "voice.audio": one.voice.audio,
                "voice.mel": one.voice.mel,
                "voice.speaker": one.voice.speaker,
                "voice.encoded": one.voice.encoded,
                "voice.codes": one.voice.codes,
                "voice.text_ids": torch.tensor(one.voice.text_ids, dtype=torch.int32),
            }
        for name, value in named.items():
            dtype = torch.float32 if value.is_floating_point() else torch.int32
            out[f"run{index}.{name}"] = value.to(dtype).contiguous()
    return out


def save_checkpoint(model, codec, fixture: Fixture, tokenizer, folder: Path) -> None:
    """The files of a published checkpoint. The codec's encoder is left out where nothing is cloned."""
    dtype = getattr(torch, fixture.dtype)
    model.to(dtype).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    # The reference writes a field that its own class refuses to read.
    del config["speaker_encoder_config"]["model_type"]
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    speech = folder / "speech_tokenizer"
    speech.mkdir()
    codec.config.save_pretrained(speech)
    kept = {
        name: value.to(dtype).contiguous()
        for name, value in codec.state_dict().items()
        if fixture.speech_encoder or not name.startswith("encoder.")
    }
    save_file(kept, speech / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(str(folder / "tokenizer.json"))
    generation = dict(
        do_sample=True,
        repetition_penalty=fixture.penalty,
        temperature=0.9,
        top_p=1.0,
        top_k=50,
        subtalker_dosample=True,
        subtalker_temperature=0.9,
        subtalker_top_p=1.0,
        subtalker_top_k=50,
        max_new_tokens=60,
    )
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=1) + "\n")


def load(folder: Path, fixture: Fixture):
    """A checkpoint as a reader gets it, in f32."""
    checkpoint = folder / "checkpoint"
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    config, codec_config = Qwen3TTSConfig.from_pretrained(checkpoint), checkpoint / "speech_tokenizer"
    codec_config = Qwen3TTSTokenizerV2Config.from_pretrained(codec_config)
    model = Qwen3TTSForConditionalGeneration._from_config(config, dtype=torch.float32).eval()
    codec = Qwen3TTSTokenizerV2Model._from_config(codec_config, dtype=torch.float32).eval()
    read = {name: value.float() for name, value in load_file(checkpoint / "model.safetensors").items()}
    model.load_state_dict(read)
    read = load_file(checkpoint / "speech_tokenizer" / "model.safetensors")
    missing = codec.load_state_dict({name: value.float() for name, value in read.items()}, strict=False)
    assert not missing.unexpected_keys
    assert all(name.startswith("encoder.") for name in missing.missing_keys), missing.missing_keys
    return model, codec, tokenizer


def describe(model, codec, fixture: Fixture, tokenizer, seed: int, made: list[runs.Made], expected) -> dict:
    stds = {name: round(t.std().item(), 4) for name, t in expected.items() if t.is_floating_point()}
    assert all(std >= 0.1 for std in stds.values()), stds
    return {
        "versions": VERSIONS,
        "seed": seed,
        "dtype": fixture.dtype,
        "settings": {"repetition_penalty": fixture.penalty, "do_sample": False, "max_new_tokens": 60},
        "frames_of_a_model_that_ends_at_once": eager_frames(model, codec, fixture, tokenizer),
        "runs": [
            {
                "text": run.text,
                "whole": run.whole,
                "speaker": run.speaker,
                "language": run.language,
                "instruct": run.instruct,
                "cloned": run.recording is not None,
                "reference": run.reference,
                "prompt_rows": len(one.prompt),
                "frames": one.codes.shape[1],
                "top_two_gap": {"talker": gap(one.scores[2:]), "predictor": gap(one.predictor_logits)},
            }
            for run, one in zip(fixture.runs, made, strict=True)
        ],
        "distinct_codes": len({code for one in made for code in one.first}),
        "std": stds,
    }


def make(fixture: Fixture) -> None:
    tokenizer = tokens.build(fixture.vocab)
    model, codec, seed = search(fixture, tokenizer)
    folder = FOLDER / fixture.name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "checkpoint").mkdir(parents=True)
    save_checkpoint(model, codec, fixture, tokenizer, folder / "checkpoint")
    # All outputs come from the saved checkpoint, not from the model in memory.
    model, codec, tokenizer = load(folder, fixture)
    made = [runs.ask(model, codec, fixture, tokenizer, run) for run in fixture.runs]
    assert fault(model, fixture, made) is None, fault(model, fixture, made)
    expected = tensors(codec, made)
    summary = describe(model, codec, fixture, tokenizer, seed, made, expected)
    save_file(expected, folder / "expected.safetensors")
    (folder / "expected.json").write_text(json.dumps(summary, indent=1) + "\n")
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{fixture.name}: seed {seed}, {size / 1e6:.2f} MB")


def check(fixture: Fixture) -> None:
    folder = FOLDER / fixture.name
    expected = load_file(folder / "expected.safetensors")
    model, codec, tokenizer = load(folder, fixture)
    now = tensors(codec, [runs.ask(model, codec, fixture, tokenizer, run) for run in fixture.runs])
    assert now.keys() == expected.keys()
    worst = 0.0
    for name, tensor in expected.items():
        if not tensor.is_floating_point():
            assert torch.equal(now[name], tensor), name
        elif len(tensor):
            worst = max(worst, ((now[name] - tensor).abs().max() / tensor.abs().max()).item())
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
    warnings.filterwarnings("ignore")
    for fixture in FIXTURES:
        if not arguments.names or fixture.name in arguments.names:
            (check if arguments.check else make)(fixture)


if __name__ == "__main__":
    main()
