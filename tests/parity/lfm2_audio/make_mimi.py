"""Makes the fixture of Mimi, with which LFM2-Audio speaks: `python make_mimi.py`, with liquid-audio's moshi.

A small random file with the names of the published one, in a folder with the language model of ../fixtures/lfm2_audio,
and the samples of that fixture's first response, decoded at once and frame by frame.
"""

import importlib.metadata
import json
import shutil
from pathlib import Path

import stubs  # noqa: F401
import torch
from liquid_audio.moshi.models import loaders
from safetensors.torch import load_file, save_file

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
FOLDER = FIXTURES / "lfm2_mimi"
# Of ../fixtures/lfm2_audio.
CODEBOOKS, ENTRIES = 8, 32
# Small sizes, with the published strides. The window is shorter than the response.
SEANET = {"dimension": 16, "n_filters": 2}
QUANTIZER = {"dimension": 8, "n_q": 10, "bins": ENTRIES, "input_dimension": 16, "output_dimension": 16}
TRANSFORMER = {
    "d_model": 16,
    "num_heads": 2,
    "num_layers": 2,
    "context": 11,
    "dim_feedforward": 24,
    "input_dimension": 16,
    "output_dimensions": [16],
}
# The same in config.json, with the names of transformers' MimiConfig.
SECTION = {
    "hidden_size": SEANET["dimension"],
    "num_filters": SEANET["n_filters"],
    "codebook_size": QUANTIZER["bins"],
    "codebook_dim": QUANTIZER["dimension"],
    "vector_quantization_hidden_dimension": QUANTIZER["dimension"],
    "num_quantizers": QUANTIZER["n_q"],
    "num_hidden_layers": TRANSFORMER["num_layers"],
    "num_attention_heads": TRANSFORMER["num_heads"],
    "num_key_value_heads": TRANSFORMER["num_heads"],
    "intermediate_size": TRANSFORMER["dim_feedforward"],
    "sliding_window": TRANSFORMER["context"],
}
# The convolution that makes samples, and its weights' scale: sound below 1.
LAST, QUIET = "decoder.model.14.", 0.006
# Names that the published file has in the place of newer ones.
PUBLISHED = {"in_projs.0.weight": "in_proj_weight", "out_projs.0.weight": "out_proj.weight"}


@torch.no_grad()
def draw(state: dict[str, torch.Tensor], seed: int) -> None:
    """Draws every tensor, in the order of its name, at scales at which each one matters."""
    rng = torch.Generator().manual_seed(seed)
    for name, tensor in sorted(state.items()):
        if name.endswith("_initialized"):
            continue
        if name.endswith(("cluster_usage", "norm1.weight", "norm2.weight", ".scale")):
            tensor.copy_(0.6 + 0.8 * torch.rand(tensor.shape, generator=rng))
        elif tensor.dim() == 1:
            tensor.copy_(0.2 * torch.randn(tensor.shape, generator=rng))
        elif name.endswith("embedding_sum"):
            tensor.copy_(torch.randn(tensor.shape, generator=rng))
        else:
            # A transposed convolution has its inputs first.
            inputs = len(tensor) if "convtr" in name else tensor[0].numel()
            gain = QUIET if name.startswith(LAST) else 1.4
            tensor.copy_(gain * torch.randn(tensor.shape, generator=rng) / inputs**0.5)


def renamed(name: str) -> str:
    """Name of a tensor in the published file."""
    newer = next((newer for newer in PUBLISHED if name.endswith(newer)), "")
    return name.removesuffix(newer) + PUBLISHED.get(newer, "")


@torch.no_grad()
def main() -> None:
    """Makes the fixture."""
    torch.set_num_threads(1)
    for sizes, small in (
        (loaders._seanet_kwargs, SEANET),
        (loaders._quantizer_kwargs, QUANTIZER),
        (loaders._transformer_kwargs, TRANSFORMER),
    ):
        sizes.update(small)
    state = loaders.get_mimi(None).state_dict()
    draw(state, 1)
    home = FOLDER / "checkpoint"
    home.mkdir(parents=True, exist_ok=True)
    path = home / loaders.MIMI_NAME
    save_file({renamed(name): tensor.contiguous() for name, tensor in state.items()}, path)
    newer = FIXTURES / "lfm2_audio" / "checkpoint"
    for file in ("model.safetensors", "tokenizer.json"):
        shutil.copyfile(newer / file, home / file)
    config = json.loads((newer / "config.json").read_text())
    (home / "config.json").write_text(json.dumps({**config, "mimi": SECTION}, indent=2) + "\n")

    # As LFM2AudioProcessor does.
    mimi = loaders.get_mimi(None)
    mimi.load_state_dict(load_file(path), strict=True)
    mimi.eval()
    said = load_file(FIXTURES / "lfm2_audio" / "expected.safetensors")["turn0.frames"].reshape(-1, CODEBOOKS)
    codes = said[said[:, 0] != ENTRIES].long().T[None]
    whole = mimi.decode(codes)[0, 0]
    with mimi.streaming(1):
        pieces = torch.cat([mimi.decode(codes[..., at : at + 1])[0, 0] for at in range(codes.shape[-1])])
    save_file({"turn0.waveform": whole.contiguous()}, FOLDER / "expected.safetensors")
    facts = {
        "versions": {name: importlib.metadata.version(name) for name in ("liquid-audio", "torch")},
        "frames": codes.shape[-1],
        "std": round(float(whole.std()), 4),
        "largest": round(float(whole.abs().max()), 4),
        "frame by frame": float((pieces - whole).abs().max() / whole.abs().max()),
    }
    (FOLDER / "expected.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
