"""Makes the parity fixture of Qwen2.5-Omni's token2wav with its reference implementation: `python token2wav.py`.

With `--check` it makes nothing: it runs the committed checkpoint again and compares with the committed tensors. Noise
is injected, so that the same numbers go in on both sides. The reference decodes a whole reply; `windowed` is what it
makes of each block of `block_size` mel frames if it is given no more than a streaming decoder has: the blocks before
that one evaluation sees, the block itself, and the blocks after it.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.append(str(Path(__file__).parent.parent))

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import Qwen2_5OmniToken2WavModel
from transformers.models.qwen2_5_omni.configuration_qwen2_5_omni import Qwen2_5OmniToken2WavConfig

import weights

FOLDER = Path(__file__).parent.parent / "fixtures" / "omni25_token2wav"
SEED = 1
DTYPE = torch.bfloat16
CODES = 17
REFERENCE_FRAMES = 19
# An evaluation in the middle of a solve.
TIME = 0.37

DIT: dict[str, Any] = dict(
    hidden_size=36,
    num_hidden_layers=5,
    num_attention_heads=3,
    head_dim=12,
    ff_mult=2,
    emb_dim=20,
    block_size=6,
    look_ahead_layers=[2],
    look_backward_layers=[0, 3],
    repeats=2,
    num_embeds=41,
    mel_dim=14,
    enc_emb_dim=10,
    enc_dim=9,
    enc_channels=[16, 16, 16, 16, 48],
    enc_kernel_sizes=[5, 3, 3, 3, 1],
    enc_dilations=[1, 2, 3, 4, 1],
    enc_attention_channels=8,
    enc_res2net_scale=2,
    enc_se_channels=7,
)
BIGVGAN: dict[str, Any] = dict(
    mel_dim=14,
    upsample_initial_channel=40,
    resblock_kernel_sizes=[3, 7, 11],
    resblock_dilation_sizes=[[1, 3, 5], [1, 3, 5], [1, 3, 5]],
    upsample_rates=[5, 3, 2],
    upsample_kernel_sizes=[11, 7, 4],
)

# Gain over 1 / sqrt(inputs) of a matrix, by what its inputs have been through.
GAINS = {
    "attn.to_q": 1.5,
    "attn.to_k": 1.5,
    "attn.to_v": 2.0,
    "attn.to_out": 3.0,  # attention averages
    "ff.ff.3": 2.0,
    "attn_norm.linear": 1.2,
    "norm_out.linear": 0.7,
    "time_mlp": 1.6,
    "spk_encoder": 1.5,  # after a rectifier
    "se_block": 2.5,
    "codec_embed": 1.0,
}


def _normal(p, rng, std):
    p.copy_(torch.randn(p.shape, generator=rng) * std)


@torch.no_grad()
def redraw(model: nn.Module, seed: int) -> None:
    """Draws every parameter in the order of its name, at scales at which each block moves its output."""
    rng = torch.Generator().manual_seed(seed)
    modules = dict(model.named_modules())
    for name, p in sorted(model.named_parameters()):
        module, leaf = name.rsplit(".", 1)
        if leaf in ("alpha", "beta"):
            p.copy_(torch.rand(p.shape, generator=rng) * 0.5 + 0.3)
            signs = torch.where(torch.rand(p.shape, generator=rng) < 0.5, -1.0, 1.0)
            # Low frequencies only: high ones turn rounding errors into differences above 1e-4.
            p.mul_(-1.0 if leaf == "alpha" else signs)
        elif leaf == "bias":
            _normal(p, rng, 0.3)
        elif isinstance(modules[module], nn.ConvTranspose1d):
            _normal(p, rng, (p.shape[0] * p.shape[2] / modules[module].stride[0]) ** -0.5)
        elif "resblocks" in name:
            _normal(p, rng, 0.6 * (p.shape[1] * p.shape[2]) ** -0.5)
        elif "codec_embed" in name:
            _normal(p, rng, 1.0)
        else:
            gain = next((gain for part, gain in GAINS.items() if part in name), 1.0)
            _normal(p, rng, gain * p[0].numel() ** -0.5)


def inputs() -> dict[str, torch.Tensor]:
    """A voice, codes, and the noise that a solve begins with."""
    rng = torch.Generator().manual_seed(SEED + 1)
    frames, mel = CODES * DIT["repeats"], DIT["mel_dim"]
    return {
        "conditioning": torch.randn(1, DIT["enc_emb_dim"], generator=rng),
        "reference_mel": torch.randn(1, REFERENCE_FRAMES, mel, generator=rng) - 1.0,
        "codes": torch.randint(DIT["num_embeds"], (1, CODES), generator=rng),
        "noise": torch.randn(1, frames, mel, generator=rng),
        # Loud and quiet, beyond both ends of the range that the vocoder keeps.
        "mel": torch.randn(1, mel, CODES, generator=rng) * 6.0 - 5.0,
    }


def solve(model, given, codes: slice | None = None) -> torch.Tensor:
    """The reference's whole solve of some codes, from their part of the noise: `[mel, frames]`."""
    codes = codes or slice(0, CODES)
    repeats = DIT["repeats"]
    noise = given["noise"][:, codes.start * repeats : codes.stop * repeats]
    with mock.patch.object(torch, "randn", lambda *_, **__: noise.clone()):
        return model.code2wav_dit_model.sample(given["conditioning"], given["reference_mel"], given["codes"][:, codes])


def windowed(model, given) -> torch.Tensor:
    """Each block solved on its window: as many blocks before and after as one evaluation sees."""
    block = DIT["block_size"] // DIT["repeats"]
    before, after = len(DIT["look_backward_layers"]), len(DIT["look_ahead_layers"])
    parts = []
    for first in range(0, CODES, block):
        start, stop = max(0, first - before * block), min(CODES, first + (1 + after) * block)
        mel = solve(model, given, slice(start, stop))
        at = (first - start) * DIT["repeats"]
        parts.append(mel[..., at : at + DIT["block_size"] if stop > first + block else None])
    return torch.cat(parts, dim=-1)


def run(model, given) -> dict[str, torch.Tensor]:
    """Everything that is compared, frames first."""
    dit, vocoder = model.code2wav_dit_model, model.code2wav_bigvgan_model
    encoder = dit.input_embed.spk_encoder
    repeats = DIT["repeats"]
    frames = CODES * repeats
    speaker = given["conditioning"].unsqueeze(1).repeat(1, frames, 1)
    evaluation = dit(
        hidden_states=given["noise"],
        condition_vector=given["reference_mel"],
        speaker_embedding=speaker,
        quantized_code=given["codes"],
        time_step=torch.tensor(TIME),
    )
    whole, window = solve(model, given), windowed(model, given)
    assert whole.shape == window.shape
    with mock.patch.object(torch, "randn", lambda *_, **__: given["noise"].clone()):
        waveform = model(given["codes"], given["conditioning"], given["reference_mel"])
    return {
        "speaker": encoder(given["reference_mel"])[0],
        "no_speaker": encoder(torch.zeros_like(given["reference_mel"]))[0],
        "evaluation.guided": evaluation[0],
        "evaluation.null": evaluation[1],
        "solved": whole[0].T,
        "windowed": window[0].T,
        "vocoded": vocoder(given["mel"]),
        "waveform": waveform,
        "windowed_waveform": vocoder(window),
    }


def build(seed: int) -> Qwen2_5OmniToken2WavModel:
    config = Qwen2_5OmniToken2WavConfig(dit_config=DIT, bigvgan_config=BIGVGAN)
    model = Qwen2_5OmniToken2WavModel._from_config(config).eval()
    redraw(model, seed)
    # About as loud as speech, rarely clipped.
    last, vocoder = model.code2wav_bigvgan_model.conv_post, model.code2wav_bigvgan_model
    with torch.no_grad():
        last.weight *= 0.01
        last.weight *= 0.25 / vocoder(inputs()["mel"]).std()
    weights.round_to(model, DTYPE)
    return model


def save(model, folder: Path) -> None:
    config = {"token2wav_config": model.config.to_dict()}
    for part in ("dit_config", "bigvgan_config"):
        kept = DIT if part == "dit_config" else BIGVGAN
        rope = {"rope_parameters": config["token2wav_config"][part].get("rope_parameters")}
        config["token2wav_config"][part] = kept | {name: value for name, value in rope.items() if value}
    config["token2wav_config"] = {part: config["token2wav_config"][part] for part in ("dit_config", "bigvgan_config")}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    state = {f"token2wav.{name}": value.to(DTYPE).contiguous() for name, value in model.state_dict().items()}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def load(folder: Path) -> Qwen2_5OmniToken2WavModel:
    """A checkpoint as a reader gets it, in f32."""
    sizes = json.loads((folder / "config.json").read_text())["token2wav_config"]
    model = Qwen2_5OmniToken2WavModel._from_config(Qwen2_5OmniToken2WavConfig(**sizes)).eval()
    read = load_file(folder / "model.safetensors")
    model.load_state_dict({name.removeprefix("token2wav."): value.float() for name, value in read.items()})
    return model


def stds(expected) -> dict[str, float]:
    return {name: round(t.std().item(), 4) for name, t in expected.items() if t.is_floating_point()}


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """Root of the mean square difference, relative to the reference's own."""
    return ((one - other).pow(2).mean().sqrt() / other.pow(2).mean().sqrt()).item()


def make() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    (FOLDER / "checkpoint").mkdir(parents=True)
    save(build(SEED), FOLDER / "checkpoint")
    # All outputs come from the saved checkpoint, not from the model in memory.
    given = inputs()
    made = run(load(FOLDER / "checkpoint"), given)
    clipped = (made["waveform"].abs() >= 1.0).float().mean().item()
    spread = stds(made)
    assert all(std >= 0.05 for std in spread.values()), spread
    assert clipped < 0.02, clipped
    facts = {
        "versions": {"transformers": transformers.__version__, "torch": torch.__version__},
        "seed": SEED,
        "time": TIME,
        "windowed_from_whole": {
            "mel": distance(made["windowed"], made["solved"]),
            "waveform": distance(made["windowed_waveform"], made["waveform"]),
        },
        "std": spread,
    }
    given["mel"] = given["mel"].transpose(1, 2)
    tensors = {name: value[0] for name, value in given.items()} | made
    tensors["codes"] = tensors["codes"].to(torch.int32)
    save_file({name: value.contiguous() for name, value in tensors.items()}, FOLDER / "expected.safetensors")
    (FOLDER / "expected.json").write_text(json.dumps(facts, indent=1) + "\n")
    size = sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file())
    print(json.dumps(facts, indent=1))
    print(f"{size / 1e3:.0f} kB")


def check() -> None:
    expected = load_file(FOLDER / "expected.safetensors")
    now = run(load(FOLDER / "checkpoint"), inputs())
    worst = max(((now[name] - expected[name]).abs().max() / expected[name].abs().max()).item() for name in now)
    assert worst < 1e-5, worst
    print(f"{len(now)} tensors as committed, within {worst:.1e} of the largest value of each")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare the committed fixture instead of making it")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    (check if arguments.check else make)()


if __name__ == "__main__":
    main()
