"""Compares the fixture `ming_tts` with the modules of the published code: `python compare_reference.py CHECKOUT`.

CHECKOUT is a checkout of inclusionAI/Ming-omni-tts; 200a156 was compared. Beside the versions of ../README.md this
needs `x-transformers` with its own requirements. It prints the largest distances of whole responses, and of samples in
one decode and in the published stream.
"""

import sys
from pathlib import Path
from unittest import mock

import models
import numpy as np
import torch
from safetensors.torch import load_file
from transformers import Qwen2Config, Qwen2ForCausalLM

HOME = Path(__file__).resolve().parent
sys.path += [str(HOME.parent), sys.argv[1]]
from audio_tokenizer.vae_modules import Decoder  # noqa: E402
from fm.dit import Aggregator  # noqa: E402
from fm.flowloss import FlowLoss  # noqa: E402
from models import HIDDEN, HISTORY, LATENT, PATCH  # noqa: E402

from draws import normal  # noqa: E402
from make_fixtures import RESPONSE, SEED, TEXTS  # noqa: E402

FOLDER = HOME.parent / "fixtures" / "ming_tts"
WEIGHTS = load_file(FOLDER / "checkpoint" / "model.safetensors")
EXPECTED = load_file(FOLDER / "expected.safetensors")


def loaded(module: torch.nn.Module, prefix: str) -> torch.nn.Module:
    """Loads the tensors below a prefix; buffers and unused tables are computed."""
    own = {name.removeprefix(prefix): w.float() for name, w in WEIGHTS.items() if name.startswith(prefix)}
    unknown = module.load_state_dict(own, strict=False).unexpected_keys
    assert own and not unknown, unknown
    return module.eval()


def language_model() -> torch.nn.Module:
    """Qwen2 with the fixture's weights."""
    sizes = dict(models.LLM)
    rope = {"rope_type": "default", "rope_theta": sizes.pop("rope_theta")}
    config = Qwen2Config(**sizes, rope_parameters=rope, attn_implementation="eager")
    return loaded(Qwen2ForCausalLM(config), "model.")


@torch.no_grad()
def main() -> None:
    """Prints the distances."""
    llm = language_model()
    flow = loaded(FlowLoss(LATENT, HIDDEN, **models.FLOW), "flowloss.")
    aggregator = loaded(Aggregator(LATENT, llm_input_dim=HIDDEN, **models.AGGREGATOR), "linear_proj_audio.")
    backbone = {**models.BACKBONE, "vocab_size": 1, "attn_implementation": "eager"}
    decoder = loaded(Decoder(backbone, models.HOP, LATENT, patch_size=models.UPSAMPLED), "audio.decoder.")
    for run in TEXTS:
        latents, samples = EXPECTED[f"{run}.latents"], EXPECTED[f"{run}.samples"]
        table = llm.model.embed_tokens.weight
        rows = [table[number] if number >= 0 else torch.zeros(HIDDEN) for number in EXPECTED[f"{run}.ids"].tolist()]
        rows, history, past, said = torch.stack(rows)[None], torch.zeros(1, HISTORY, LATENT), None, []
        for first in range(0, len(latents), PATCH):
            out = llm(inputs_embeds=rows, past_key_values=past, use_cache=True, output_hidden_states=True)
            past = out.past_key_values
            noise = torch.tensor(normal(SEED, RESPONSE, np.arange(first, first + PATCH), LATENT)).T[None]
            with mock.patch("torch.randn", lambda *_, noise=noise, **__: noise):
                patch, _ = flow.sample(out.hidden_states[-1][:, -1:], history, models.GUIDANCE, PATCH)
            said.append(patch[0])
            rows, history = aggregator(patch), torch.cat([history[:, PATCH:], patch], 1)
        whole, _, _ = decoder.low_level_reconstruct(latents[None], stream_state=(None, None, None))
        stream: list[torch.Tensor] = []
        state, past = (None, None, None), None
        for piece in latents.split(PATCH):
            last = len(stream) == len(latents) // PATCH - 1
            sound, state, past = decoder.low_level_reconstruct(piece[None], past, True, state, last)
            stream.append(sound.flatten())
        pairs = {"latents": (torch.cat(said), latents), "whole": (whole.flatten(), samples)}
        pairs["stream"] = (torch.cat(stream), samples)
        print(run, {name: f"{(a - b).abs().max():.1e}" for name, (a, b) in pairs.items()})


if __name__ == "__main__":
    main()
