"""Compares the fixture with the published code: `python compare_reference.py CHECKOUT`.

CHECKOUT is a checkout of AIDASLab/Dynin-Omni; d6e3ca8 was compared. Its language model with the generation of
speech, and its U-VITS, run with the noise of the fixture. It prints if the units are equal, and the largest distances
of logits and samples.
"""

import importlib
import sys
import types
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from safetensors.torch import load_file

HOME = Path(__file__).resolve().parent
CHECKOUT = Path(sys.argv[1])
UVITS = CHECKOUT / "tokenizers/EMOVA_speech_tokenizer/emova_speech_tokenizer/speech_tokenization/UVITS"
sys.path[:0] = [str(HOME), str(HOME.parent)]
import models  # noqa: E402

from draws import normal, uniform  # noqa: E402
from make_fixtures import CODEC, ENDS, FOLDER, MASK, RESPONSE, SEED, TEXTS, frame_noise  # noqa: E402

WEIGHTS = {name: w.float() for name, w in load_file(FOLDER / "checkpoint/model.safetensors").items()}
SOUND = {name: w.float() for name, w in load_file(FOLDER / "checkpoint" / CODEC / "model.safetensors").items()}
EXPECTED = load_file(FOLDER / "expected.safetensors")


def published_model():
    """The published language model with the fixture's weights."""
    package = types.ModuleType("dynin")
    package.__path__ = [str(CHECKOUT / "models")]
    sys.modules["dynin"] = package
    llada = importlib.import_module("dynin.modeling_llada")
    images = {"PIL": mock.MagicMock(), "PIL.Image": mock.MagicMock()}
    with mock.patch.dict(sys.modules, images):
        dynin = importlib.import_module("dynin.modeling_dynin_omni")
    config = llada.LLaDAConfig(
        d_model=models.WIDTH,
        n_heads=models.HEADS,
        n_layers=models.LAYERS,
        mlp_hidden_size=models.INNER,
        rope=True,
        rope_theta=models.THETA,
        rms_norm_eps=models.EPSILON,
        layer_norm_type="rms",
        block_type="llama",
        activation_type="silu",
        vocab_size=models.ROWS,
        embedding_size=models.ROWS,
        weight_tying=False,
        include_bias=False,
        attention_dropout=0.0,
        residual_dropout=0.0,
        embedding_dropout=0.0,
        max_sequence_length=512,
        init_device="cpu",
    )
    config.use_cache = False
    model = llada.LLaDAModelLM(config, init_params=False).eval()
    wrong = model.load_state_dict(WEIGHTS, strict=False)
    assert not wrong.unexpected_keys and not wrong.missing_keys, wrong
    return model, dynin.DyninOmniModelLM.t2s_generate_mmu_like


class Prompting:
    """Ids that the published generation looks up."""

    def __init__(self):
        self.sptids_dict = {"<|eoa|>": torch.tensor([ENDS[0]])}
        self.text_tokenizer = mock.MagicMock(eos_token_id=ENDS[1])
        self.text_tokenizer.__len__.return_value = models.TEXT_ROWS


def multinomial(chances: torch.Tensor, _: int) -> torch.Tensor:
    """Draws as the engine does, for the rows of one block after the other."""
    step, block = multinomial.step, multinomial.step // (models.STEPS // 3)  # type: ignore[attr-defined]
    places = np.arange(block * models.BLOCK, (block + 1) * models.BLOCK)
    numbers = torch.tensor(uniform(SEED, RESPONSE, step, places)).double()
    multinomial.step += 1  # type: ignore[attr-defined]
    found = (chances.double().cumsum(-1) <= numbers[:, None]).sum(-1, keepdim=True)
    return found.clamp_max(chances.shape[-1] - 1)


def published_codec():
    """The published U-VITS with the fixture's weights; parts for training are left out."""
    sys.path.insert(0, str(UVITS))
    absent = {"monotonic_align": mock.MagicMock(), "scipy": mock.MagicMock()}
    with mock.patch.dict(sys.modules, absent):
        sys.modules.pop("models")
        vits = importlib.import_module("models")
    sizes = {**models.VITS, "p_dropout": 0.1}
    net = vits.SynthesizerTrn(models.SYMBOLS + models.UNITS, 513, 32, n_speakers=2, **sizes).eval()
    own = {name.removeprefix("decoder."): w for name, w in SOUND.items() if name.startswith("decoder.")}
    unknown = net.load_state_dict(own, strict=False).unexpected_keys
    assert not unknown, unknown
    return net


@torch.no_grad()
def main() -> None:
    """Prints the distances."""
    llm, generate = published_model()
    for run in TEXTS:
        ids = torch.cat([EXPECTED[f"{run}.ids"].long(), torch.full((models.CANVAS,), MASK)])[None]
        logits = llm(ids).logits[0, -models.CANVAS :, [*range(models.FIRST_UNIT, models.ROWS), *ENDS]]
        far = (logits - EXPECTED[f"{run}.null"]).abs().max()
        multinomial.step = 0  # type: ignore[attr-defined]
        with mock.patch.object(torch, "multinomial", multinomial):
            found = generate(
                llm,
                ids,
                steps=models.STEPS,
                block_length=models.BLOCK,
                temperature=models.TEMPERATURE,
                cfg_scale=models.GUIDANCE,
                mask_token_id=MASK,
                uni_prompting=Prompting(),
                codebook_size=models.IMAGE_CODES,
                audio_codebook_size=models.UNITS,
            )[0]
        units = EXPECTED[f"{run}.units"].tolist()
        print(run, "units equal:", found.tolist() == units, "logits:", float(far))
    net = published_codec()
    style = SOUND["style_embedding.weight"][0][None, :, None]
    for run in TEXTS:
        units, samples = EXPECTED[f"{run}.units"].tolist(), []
        for block, at in enumerate(range(0, len(units), models.BLOCK)):
            ids = torch.tensor([units[at : at + models.BLOCK]]) + models.SYMBOLS
            steps = (block << 20) + np.arange(ids.shape[1])
            first = torch.tensor(normal(SEED, RESPONSE, steps, 2)).T[None]
            rest = lambda like, block=block: frame_noise(block, like.shape[2]).T[None]  # noqa: E731
            with (
                mock.patch.object(torch, "randn", lambda *_, first=first: first),
                mock.patch.object(torch, "randn_like", rest),
            ):
                lengths = torch.tensor([ids.shape[1]])
                made = net.synthesis_from_content_unit_style_embedding(ids, lengths, style, 0.667, 1, 0.8)[0]
            samples.append(made[0, 0])
        found = torch.cat(samples)
        same = found.shape == EXPECTED[f"{run}.samples"].shape
        print(run, "samples:", same and float((found - EXPECTED[f"{run}.samples"]).abs().max()))


if __name__ == "__main__":
    main()
