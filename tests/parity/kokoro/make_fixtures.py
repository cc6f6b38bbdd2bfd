"""Writes tests/parity/fixtures/kokoro: a small random checkpoint in the published form, and the reference's results.

Run with the reference's Python (`scripts/setup.sh reference`), and KOKORO as reference.py says:

    KOKORO=FOLDER target/tools/reference/bin/python tests/parity/kokoro/make_fixtures.py

With the folder that tests/parity/kokoro/from_packages.py makes as an argument, it writes there what the reference makes
of the published weights; the ignored tests of engine/tests/families/kokoro.rs compare with it.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.utils import remove_weight_norm, weight_norm

from reference import VERSION, Trace, load

FOLDER = Path(__file__).parent.parent / "fixtures" / "kokoro"
PHONEMES = " ,.?!abdefhiklmnoprstuvw"
WIDTH, RESIDUAL = 8, 3  # channels of the decoder, which the reference fixes to 1024 and 64
CONFIG: dict[str, Any] = {
    "istftnet": {
        "upsample_kernel_sizes": [7, 4],
        "upsample_rates": [3, 2],
        "gen_istft_hop_size": 2,
        "gen_istft_n_fft": 8,
        "resblock_dilation_sizes": [[1, 3, 5], [1, 2, 3]],
        "resblock_kernel_sizes": [3, 5],
        "upsample_initial_channel": 12,
    },
    "dim_in": 12,
    "dropout": 0.2,
    "hidden_dim": 12,
    "max_dur": 9,
    "n_layer": 2,
    "n_mels": 80,
    "n_token": len(PHONEMES) + 1,
    "style_dim": 6,
    "text_encoder_kernel_size": 5,
    "plbert": {
        "embedding_size": 10,
        "hidden_size": 16,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "max_position_embeddings": 24,
        "num_hidden_layers": 3,
        "dropout": 0.1,
    },
    "vocab": {symbol: at + 1 for at, symbol in enumerate(PHONEMES)},
}
LEXICON = {
    "gold": {
        "hello": "helo",
        "sun": "san",
        "dog": "dok",
        "use": {"DEFAULT": "ius", "VERB": "iusa"},
        "A": "e",
        "B": "bi",
        "O": "o",
    },
    "silver": {"friend": "frent"},
}
PUBLISHED = [("hˈɛlO ðɛɹ, hˌW ɑɹ ju dˈuɪŋ?", 1.0), ("ðə kwˈɪk bɹˈWn fˈɑks ʤˈʌmps ˈOvəɹ ðə lˈAzi dˈɔɡ.", 1.1)]
CLAUSES = [("hello, sun!", 1.0), ("a", 1.0), ("is it me?", 1.3)]


def small_decoder(istftnet):
    """The reference's decoder with other widths than those in its source."""

    class SmallDecoder(istftnet.Decoder):  # type: ignore[name-defined]
        def __init__(self, dim_in, style_dim, dim_out, disable_complex=False, **sizes):
            nn.Module.__init__(self)
            first = sizes["upsample_initial_channel"]
            block, inside = istftnet.AdainResBlk1d, WIDTH + 2 + RESIDUAL
            self.encode = block(dim_in + 2, WIDTH, style_dim)
            self.decode = nn.ModuleList([block(inside, WIDTH, style_dim) for _ in range(3)])
            self.decode.append(block(inside, first, style_dim, upsample=True))
            self.F0_conv = weight_norm(nn.Conv1d(1, 1, kernel_size=3, stride=2, padding=1))
            self.N_conv = weight_norm(nn.Conv1d(1, 1, kernel_size=3, stride=2, padding=1))
            self.asr_res = nn.Sequential(weight_norm(nn.Conv1d(dim_in, RESIDUAL, kernel_size=1)))
            names = {name: sizes[name] for name in sizes if name.startswith(("gen", "res", "up"))}
            self.generator = istftnet.Generator(style_dim, disable_complex=disable_complex, **names)

    return SmallDecoder


class SmallStyle:
    """A style whose halves are narrower than the 128 numbers at which the reference cuts."""

    def __init__(self, numbers):
        self.halves = numbers.chunk(2, dim=-1)

    def __getitem__(self, place):
        return self.halves[0 if place[1].start is None else 1]


def draw(model):
    """Random numbers of a size that keeps each layer's output near its input's."""
    generator = torch.Generator().manual_seed(82)
    for name, tensor in model.state_dict().items():
        if ".norm." in name:
            continue  # factors of norms without a style: 1 and 0 in the published file, which lacks them
        numbers = torch.randn(tensor.shape, generator=generator)
        if name.endswith(("weight_g", "alpha1", "alpha2")) or "alpha" in name:
            numbers = 1 + 0.2 * numbers.abs()
        elif tensor.dim() > 1 and not name.endswith("weight_v"):
            numbers = numbers / tensor.shape[-1] ** 0.5
        elif name.endswith(("LayerNorm.weight", "gamma", "layer_layer_norm.weight")):
            numbers = 1 + 0.1 * numbers
        else:
            numbers = 0.2 * numbers
        tensor.copy_(numbers)
    # A pitch of a voice, and spectra and durations of the sizes that they have in the published model.
    scales = [
        (model.predictor.F0_proj.weight, 10),
        (model.decoder.F0_conv.weight_g, 0.005),
        (model.decoder.generator.conv_post.weight_g, 0.15),
        (model.predictor.duration_proj.linear_layer.weight, 6),
    ]
    # Phonemes that differ in their durations.
    scales += [(tensor, 5) for name, tensor in model.predictor.named_parameters() if "weight_ih" in name]
    for tensor, by in scales:
        tensor.mul_(by)
    model.predictor.F0_proj.bias.fill_(190.0)


def published_form(model):
    """The published file's form: a dictionary for each part, with the names of torch's wrapper for several devices."""
    parts = ["bert", "bert_encoder", "predictor", "decoder", "text_encoder"]

    def kept(part):
        tensors = getattr(model, part).state_dict().items()
        return {f"module.{name}": tensor.bfloat16() for name, tensor in tensors if ".norm." not in name}

    return {part: kept(part) for part in parts}


def run(model, config, clauses, style_of, style_kind):
    """Results of the reference for clauses: tensors, and durations."""
    expected: dict[str, torch.Tensor] = {}
    facts = []
    trace = Trace(model)
    for number, (phonemes, speed) in enumerate(clauses):
        ids = torch.tensor([[0, *(config["vocab"][symbol] for symbol in phonemes), 0]])
        samples, durations = model.forward_with_tokens(ids, style_kind(style_of(len(phonemes))), speed)
        expected |= {f"{number}.{name}": tensor.float().contiguous() for name, tensor in trace.found.items()}
        expected[f"{number}.samples"] = samples.reshape(-1)
        facts.append({"phonemes": phonemes, "speed": speed, "durations": durations.reshape(-1).tolist()})
    return expected, facts


def write(folder, expected, facts):
    """Writes expected.safetensors and expected.json."""
    save_file(expected, folder / "expected.safetensors")
    versions = {"kokoro": VERSION, "torch": torch.__version__, "transformers": transformers.__version__}
    text = json.dumps({"versions": versions, "clauses": facts}, ensure_ascii=False, indent=1)
    (folder / "expected.json").write_text(text + "\n")


def empty(module, config):
    """The reference with numbers of its own."""
    with tempfile.NamedTemporaryFile() as weights:
        torch.save({}, weights.name)
        return module.KModel(repo_id="none", config=config, model=weights.name).eval()


def published(folder):
    """Writes the reference's results for published weights whose norms are folded."""
    _, module = load()
    config = json.loads((folder / "config.json").read_text())
    model = empty(module, config)
    for part in model.modules():
        if hasattr(part, "weight_g"):
            remove_weight_norm(part)
    found = model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    missing = [name for name in found.missing_keys if ".norm." not in name and "pooler" not in name]
    assert not missing, missing
    voice = torch.frombuffer(bytearray((folder / "voices" / "af_heart.bin").read_bytes()), dtype=torch.float32)
    rows = voice.reshape(-1, 1, 256)
    write(folder, *run(model, config, PUBLISHED, lambda count: rows[count - 1], lambda style: style))


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if len(sys.argv) > 1:
        published(Path(sys.argv[1]))
        return
    istftnet, module = load()
    module.Decoder = small_decoder(istftnet)
    FOLDER.mkdir(parents=True, exist_ok=True)
    weights = FOLDER / "kokoro-v1_0.pth"
    model = empty(module, CONFIG)
    draw(model)
    torch.save(published_form(model), weights)
    model = module.KModel(repo_id="none", config=CONFIG, model=str(weights)).eval()
    (FOLDER / "config.json").write_text(json.dumps(CONFIG, ensure_ascii=False, indent=1) + "\n")
    (FOLDER / "voices").mkdir(exist_ok=True)
    voices = {}
    for name in ["af_one", "bm_two"]:
        voices[name] = torch.randn(22, 1, 2 * CONFIG["style_dim"])
        torch.save(voices[name], FOLDER / "voices" / f"{name}.pt")
    (FOLDER / "lexicon").mkdir(exist_ok=True)
    for accent in ["us", "gb"]:
        for kind, words in LEXICON.items():
            (FOLDER / "lexicon" / f"{accent}_{kind}.json").write_text(json.dumps(words) + "\n")
    expected, facts = run(model, CONFIG, CLAUSES, lambda count: voices["af_one"][count - 1], SmallStyle)
    lowest = min(float(tensor.min()) for name, tensor in expected.items() if name.endswith("pitch"))
    assert lowest > 20, "every frame has a pitch, so that no phase of the source is one of rounding"
    write(FOLDER, expected, facts)
    for file in sorted(FOLDER.rglob("*")):
        print(file.relative_to(FOLDER), file.stat().st_size)
    print([fact["durations"] for fact in facts])
    print({name: float(tensor.abs().max()) for name, tensor in expected.items()})


if __name__ == "__main__":
    main()
