"""Makes the fixtures of Ming with the derivation in models.py: `python make_fixtures.py`.

Two small random checkpoints in the files of the published folders: `ming_tts` as Ming-omni-tts-0.5B, and `ming_flash`
as the talker in Ming-flash-omni-2.0, which norms queries and keys. Texts with and without instructions, each with its
prompt, the conditions, latents and stop logits of its patches, and its samples. See ../README.md for the versions that
this needs.
"""

import importlib.metadata
import json
import sys
from pathlib import Path

import models
import numpy as np
import torch
from models import AGGREGATOR, FLOW, HISTORY, LATENT, PATCH
from safetensors.torch import save_file

HOME = Path(__file__).resolve().parent
sys.path.insert(0, str(HOME.parent))
import tokens  # noqa: E402
from draws import normal  # noqa: E402

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_pad|>", "<|vision_end|>"]
SPECIAL += ["<audio>"]
TEXT_IDS = 300
SEED, RESPONSE = 5, 7
# Least lead of one of the two stop logits.
MARGIN = 2e-2
TEXTS = {"plain": ("the quick brown fox", ""), "styled": ("a song about the rain", "be kind")}
NO_SPEAKER = -1


def caption(style: str) -> str:
    """Instructions of the reference's examples: a caption with a style."""
    music = dict.fromkeys(("Genre", "Mood", "Instrument", "Theme", "ENV", "SNR"))
    item = {"序号": 1, "说话人": "speaker_1", "方言": None, "风格": style, "语速": None, "基频": None, "音量": None}
    return json.dumps({"audio_sequence": [{**item, "情感": None, "BGM": music, "IP": None}]}, ensure_ascii=False)


def prompt(tokenizer, text: str, style: str, mark: str) -> list[int]:
    """Prompt of a text without a speaker."""

    def spelt(*pieces: str) -> list[int]:
        ids: list[int] = []
        for piece in pieces:
            if piece in SPECIAL:
                ids.append(SPECIAL.index(piece))
            else:
                ids += tokenizer.encode(piece, add_special_tokens=False).ids
        return ids

    asked = "Please generate speech based on the following description.\n"
    ids = spelt("<|im_start|>", "system\nYou are a helpful assistant.", "<|im_end|>", "\n", "<|im_start|>", "user\n")
    ids += spelt(asked, "  speaker_1:", "<|vision_start|>")
    ids += [NO_SPEAKER, *spelt("<|vision_end|>", "\n", " Text input:\n", text, "<|im_end|>", "\n")]
    ids += spelt("<|im_start|>", "assistant\n")
    if style:
        ids += spelt(caption(style), mark)
    return [*ids, *spelt("<audio>")]


class Run:
    """A text spoken to its end."""

    def __init__(self, model: models.Talker, ids: list[int], least: int, most: int):
        self.ids, self.lead = ids, float("inf")
        self.patches: list[torch.Tensor] = []
        self.conditions: list[torch.Tensor] = []
        self.stops: list[torch.Tensor] = []
        history = torch.zeros(HISTORY, LATENT)
        self.complete = False
        while len(self.patches) < most and not self.complete:
            condition = model.hidden(ids, self.patches)
            first = len(self.patches) * PATCH
            noise = torch.tensor(normal(SEED, RESPONSE, np.arange(first, first + PATCH), LATENT))
            patch = model.flow.solve(condition, history, noise)
            stop = model.stop_head(condition)
            if len(self.patches) > least:
                self.lead = min(self.lead, float((stop[1] - stop[0]).abs()))
            self.complete = len(self.patches) > least and bool(stop[1] > stop[0])
            history = torch.cat([history[PATCH:], patch])
            self.patches.append(patch)
            self.conditions.append(condition)
            self.stops.append(stop)


def stored(module: torch.nn.Module, prefixes: dict[str, str]) -> dict[str, torch.Tensor]:
    """Parameters under the names of a published file."""
    named = {}
    for name, p in module.state_dict().items():
        for ours, theirs in prefixes.items():
            if name.startswith(ours):
                named[theirs + name.removeprefix(ours)] = p.to(torch.bfloat16).contiguous()
    return named


def found(flow: dict, mark: str, tokenizer, least: int, most: int) -> tuple[int, models.Talker, dict[str, Run]]:
    """The first seed whose texts end in time, by clear choices."""
    model = models.Talker(flow, AGGREGATOR)
    for seed in range(1000):
        models.draw(model, seed)
        runs = {}
        for name, (text, style) in TEXTS.items():
            runs[name] = Run(model, prompt(tokenizer, text, style, mark), least, most)
            loud = torch.cat(runs[name].patches).abs().max()
            if not runs[name].complete or runs[name].lead < MARGIN or len(runs[name].patches) < least + 3 or loud > 8:
                break
        else:
            return seed, model, runs
    raise SystemExit("no seed gives such responses")


def save(name: str, made: tuple[int, models.Talker, dict[str, Run]]) -> None:
    """Writes the expected tensors and the facts of a fixture."""
    seed, model, runs = made
    tensors = {}
    for run_name, run in runs.items():
        latents = torch.cat(run.patches)
        tensors[f"{run_name}.ids"] = torch.tensor(run.ids, dtype=torch.int32)
        tensors[f"{run_name}.conditions"] = torch.stack(run.conditions)
        tensors[f"{run_name}.latents"] = latents
        tensors[f"{run_name}.stops"] = torch.stack(run.stops)
        tensors[f"{run_name}.samples"] = model.sound(latents)
    folder = HOME.parent / "fixtures" / name
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "expected.safetensors")
    facts = {
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "transformers", "tokenizers")},
        "oracle": "models.py, a derivation",
        "seed": seed,
        "runs": {name: {"patches": len(run.patches), "lead": round(run.lead, 4)} for name, run in runs.items()},
        "std": {name: round(float(tensor.float().std()), 4) for name, tensor in tensors.items()},
    }
    (folder / "expected.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(json.dumps(facts, indent=1))


def write(path: Path, content: dict) -> None:
    """Writes a file of JSON, and its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


@torch.no_grad()
def main() -> None:
    """Makes both fixtures."""
    torch.set_num_threads(1)
    tokenizer = tokens.build(TEXT_IDS, SPECIAL)
    fixtures = HOME.parent / "fixtures"
    made = found(FLOW, "<|endoftext|>", tokenizer, 3, 16)
    home = fixtures / "ming_tts" / "checkpoint"
    sizes = {"patch_size": PATCH, "history_patch_size": HISTORY}
    config = {
        "model_type": "dense",
        "llm_config": {"model_type": "qwen2", "hidden_act": "silu", **models.LLM},
        "ditar_config": {**FLOW, **sizes},
        "aggregator_config": AGGREGATOR,
        "audio_tokenizer_config": models.SOUND,
    }
    write(home / "config.json", config)
    names = {
        "llm.": "model.model.",
        "flow.": "flowloss.cfm.model.",
        "aggregator.": "linear_proj_audio.",
        "stop_head.": "stop_head.",
        "sound.": "audio.decoder.",
    }
    save_file(stored(made[1], names), home / "model.safetensors")
    tokenizer.save(str(home / "tokenizer.json"))
    save("ming_tts", made)

    flow = {**FLOW, "in_channels": LATENT, "qk_norm": "rms_norm"}
    made = found(flow, "<|im_end|>", tokenizer, 10, 24)
    home = fixtures / "ming_flash" / "checkpoint"
    write(home / "config.json", {"architectures": ["BailingMM2NativeForConditionalGeneration"], "mlp_depth": 2})
    solve = {"steps": models.STEPS, "cfg_strength": models.GUIDANCE, **sizes, "latent_dim": LATENT}
    parts = {"model_type": "ming_flash_omni_talker", "flowmodel": flow, "aggregator": AGGREGATOR, **solve}
    talker = home / "talker"
    write(talker / "config.json", parts)
    write(talker / "llm" / "config.json", {"model_type": "qwen2", "hidden_act": "silu", **models.LLM})
    write(talker / "vae" / "config.json", models.SOUND)
    names = {"llm.": "model.", "flow.": "cfm.model.", "aggregator.": "aggregator.", "stop_head.": "stop_head."}
    save_file(stored(made[1], names), talker / "model.safetensors")
    save_file(stored(made[1], {"sound.": "decoder."}), talker / "vae" / "model.safetensors")
    tokenizer.save(str(talker / "llm" / "tokenizer.json"))
    save("ming_flash", made)


if __name__ == "__main__":
    main()
