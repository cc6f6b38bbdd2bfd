"""Makes the fixture of LFM2.5-Audio with liquid-audio: `python make_fixtures.py`.

A small random checkpoint in the files of a published one: a conversation of two turns, the first one spoken, a given
text, and a recording written down; with the encoder's rows, logits of text and codes, and samples. See ../README.md for
the versions that this needs.
"""

import importlib.metadata
import json
import sys
from pathlib import Path

import models  # first, because it stands in for packages that the reference imports
import responses
import torch
from liquid_audio import LFM2AudioProcessor, processor
from models import (
    CODEBOOKS,
    DEPTH,
    DEPTH_HEADS,
    DEPTH_MULTIPLE,
    DETOKENIZER,
    ENCODER,
    ENTRIES,
    LFM,
    PREPROCESSOR,
    SPECTRUM,
)
from responses import audio, spoken
from safetensors.torch import save_file

HOME = Path(__file__).resolve().parent
FOLDER = HOME.parent / "fixtures" / "lfm2_audio"


@torch.no_grad()
def heard(model, proc, sound: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The spectrogram of a recording, and its encoded rows."""
    mel, _ = proc.audio(sound[None], torch.tensor([len(sound)]))
    encoded, _ = model.conformer(mel, torch.tensor([mel.shape[-1]]))
    return mel[0].T.contiguous(), model.audio_adapter(encoded[0].T)


def write_checkpoint(model, detokenizer, tokenizer) -> Path:
    """Writes the folder of a published checkpoint."""
    home = FOLDER / "checkpoint"
    (home / "audio_detokenizer").mkdir(parents=True, exist_ok=True)
    depth = {**DEPTH, "num_attention_heads": DEPTH_HEADS["num_heads"], "num_key_value_heads": DEPTH_HEADS["gqa_dim"]}
    config = {
        "architectures": ["Lfm2AudioForConditionalGeneration"],
        "codebooks": CODEBOOKS,
        "tie_audio_embeddings": False,
        "semantic_codebook_factor": 100,
        "codebook_weight": "log",
        "interleaved_n_text": 6,
        "interleaved_n_audio": 12,
        "preprocessor": PREPROCESSOR,
        "encoder": ENCODER,
        "lfm": LFM,
        "depthformer": {**depth, "multiple_of": DEPTH_MULTIPLE},
        "audio_vocab_size": ENTRIES + 1,
    }
    detokenizer_config = {**DETOKENIZER, "output_size": SPECTRUM + 2, "codebook_size": ENTRIES}
    for folder, content in ((home, config), (home / "audio_detokenizer", detokenizer_config)):
        (folder / "config.json").write_text(json.dumps(content, indent=2) + "\n")
    skipped = ("audio_loss_weights", "codebook_offsets", "num_batches_tracked")
    # The reference reads neither.
    unread = ("audio_embedding.embedding_norm", "audio_embedding.to_logits")

    def stored(module):
        return {
            name: tensor.to(torch.bfloat16).contiguous()
            for name, tensor in module.state_dict().items()
            if not name.endswith(skipped) and not name.startswith(unread) and "to_logits" not in name
        }

    save_file(stored(model), home / "model.safetensors")
    tensors = {name: tensor for name, tensor in stored(detokenizer).items() if name != "istft.window"}
    save_file(tensors, home / "audio_detokenizer" / "model.safetensors")
    tokenizer.backend_tokenizer.save(str(home / "tokenizer.json"))
    return home


def expected(model, detokenizer, proc, found: dict[str, dict]) -> dict[str, torch.Tensor]:
    """All tensors of the fixture."""
    tensors: dict[str, torch.Tensor] = {}
    for name, samples, seed in (("turn0", 21_000, 3), ("transcript", 13_111, 9)):
        sound = audio(samples, seed)
        mel, encoded = heard(model, proc, sound)
        tensors |= {f"{name}.audio": sound, f"{name}.encoded": encoded.contiguous()}
        if name == "turn0":
            tensors["turn0.mel"] = mel
    for name, run in found.items():
        recorder = run["recorder"]
        integers = {
            "prompt_kinds": run["prompt"],
            "prompt_text": run["prompt_text"],
            "prompt_codes": run["prompt_codes"],
            "kinds": run["kinds"],
            "text": run["text"],
            "frames": [code for frame in run["frames"] for code in frame],
        }
        for key, values in integers.items():
            tensors[f"{name}.{key}"] = torch.tensor(values, dtype=torch.int32)
        tensors[f"{name}.text_logits"] = torch.stack(recorder.text)
        if recorder.codes:
            tensors[f"{name}.code_logits"] = torch.stack(recorder.codes)
    with torch.no_grad():
        for name in ("turn0", "turn1", "speech"):
            tensors[f"{name}.waveform"] = detokenizer(torch.tensor(spoken(found[name])).T[None])[0]
    return tensors


def main() -> None:
    """Makes the fixture."""
    torch.set_num_threads(1)
    tokenizer = models.build_tokenizer()
    model, detokenizer = models.build_model(), models.build_detokenizer()
    models.draw(detokenizer, 1)
    models.round_to(detokenizer, torch.bfloat16)
    FOLDER.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(FOLDER / "checkpoint")
    # What save_pretrained writes beside tokenizer.json is not read.
    for path in (FOLDER / "checkpoint").iterdir():
        if path.name.startswith("tokenizer_config") or path.name.startswith("special_tokens"):
            path.unlink()
    proc = LFM2AudioProcessor.__new__(LFM2AudioProcessor)
    proc.text_tokenizer = tokenizer
    proc.audio_processor = processor.AudioToMelSpectrogramPreprocessor(**PREPROCESSOR).eval()
    first, last = (int(number) for number in [*sys.argv[1:], "0", "4000"][:2])
    for seed in range(first, last):
        models.draw(model, seed)
        models.favour(model, tokenizer)
        models.round_to(model, torch.bfloat16)
        found = responses.conversations(model, proc)
        print(seed, found is not None, flush=True)
        if found is not None:
            break
    else:
        raise SystemExit("no seed gives answers that end")
    write_checkpoint(model, detokenizer, tokenizer)
    tensors = expected(model, detokenizer, proc, found)
    save_file(
        {
            name: tensor.float().contiguous() if tensor.is_floating_point() else tensor
            for name, tensor in tensors.items()
        },
        FOLDER / "expected.safetensors",
    )
    versions = {name: importlib.metadata.version(name) for name in ("liquid-audio", "transformers", "torch")}
    facts = {
        name: {
            "text": tokenizer.decode(run["text"], skip_special_tokens=True),
            "lead": run["recorder"].lead,
            "frames": len(run["frames"]),
        }
        for name, run in found.items()
    }
    deviations = {name: round(float(tensor.std()), 4) for name, tensor in tensors.items() if tensor.is_floating_point()}
    (FOLDER / "expected.json").write_text(
        json.dumps({"versions": versions, "seed": seed, "runs": facts, "std": deviations}, indent=1) + "\n"
    )
    print(json.dumps({"seed": seed, "runs": facts, "std": deviations}, indent=1))


if __name__ == "__main__":
    main()
