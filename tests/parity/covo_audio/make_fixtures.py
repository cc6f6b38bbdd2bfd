"""Makes the fixture of Covo-Audio-Chat with the derivation in models.py: `python make_fixtures.py`.

A small random checkpoint in the files of the published folder: a conversation of two spoken turns, with mel frames and
rows of what was heard, ids and logits, latents of codes by one solve and in windows, and samples. See ../README.md for
the versions that this needs.
"""

import importlib.metadata
import itertools
import json
import sys
from pathlib import Path

import models
import numpy as np
import torch
from models import CODES, TEXT_IDS
from safetensors.torch import save_file
from transformers import DynamicCache, WhisperFeatureExtractor

HOME = Path(__file__).resolve().parent
sys.path.insert(0, str(HOME.parent))
import signals  # noqa: E402
import tokens  # noqa: E402

FOLDER = HOME.parent / "fixtures" / "covo_audio"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begofcAUDIO|>", "<|cAUDIO|>", "<|endofcAUDIO|>"]
BEGIN, AUDIO, END = 3, 4, 5
STOP = 2
ENDS = {0, STOP}
# The model was taught to answer this sentence by text and codes in turn, in this voice.
SYSTEM = "\u8bf7\u7528\u6587\u672c\u548c\u97f3\u9891\u8fdb\u884c\u5bf9\u8bdd\uff0c"
SYSTEM += "\u4ea4\u66ff\u751f\u62105\u4e2a\u6587\u672ctoken\u548c15\u4e2a\u97f3\u9891token\uff0c"
SYSTEM += "\u97f3\u9891\u90e8\u5206\u4f7f\u7528\u53d1\u97f3\u4eba\uff1adefault_female"
INSTRUCTIONS = "be brief"
# Samples of the questions: 137 mel frames, and 253.
QUESTIONS = (22_000, 40_500)
PENALTY = 1.05
# Codes of the recording, and of windows: left, new, ahead.
RECORDED, WINDOWS = 7, (6, 5, 2)
# Codes of the run of flow and vocoder.
SPOKEN = 23
# Least lead of a choice.
MARGIN = 3e-3
STEPS = 60


class Run:
    """A greedy response: its ids, and what was seen on the way."""

    def __init__(self, model: models.CovoAudio, prompt: list):
        self.prompt, self.lead = prompt, float("inf")
        self.ids: list[int] = []
        self.logits: list[torch.Tensor] = []
        allowed = torch.ones(models.VOCABULARY, dtype=torch.bool)
        allowed[: len(SPECIAL)] = False
        allowed[list(ENDS)] = True
        cache = DynamicCache()
        x = torch.stack([model.embed([row])[0] if isinstance(row, int) else row for row in prompt])
        while len(self.ids) < STEPS:
            logits = model.llm(inputs_embeds=x[None], past_key_values=cache, use_cache=True).logits[0, -1]
            self.logits.append(logits)
            scores = logits.clone()
            said = sorted(set(self.ids))
            scores[said] = torch.where(scores[said] < 0, scores[said] * PENALTY, scores[said] / PENALTY)
            two = scores.masked_fill(~allowed, -torch.inf).topk(2)
            self.lead = min(self.lead, float(two.values[0] - two.values[1]))
            self.ids.append(int(two.indices[0]))
            if self.ids[-1] in ENDS:
                return
            x = model.embed(self.ids[-1:])

    def text(self) -> list[int]:
        return [number for number in self.ids if len(SPECIAL) <= number < TEXT_IDS]

    def heard(self) -> list[int]:
        return [number - TEXT_IDS for number in self.ids if number >= TEXT_IDS]

    def order(self) -> str:
        return "".join("." if number in ENDS else "a" if number >= TEXT_IDS else "t" for number in self.ids)


class Prompts:
    """Prompts of a conversation."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.rows: list[int | torch.Tensor] = []
        self.message("system", self.encode(INSTRUCTIONS) + self.encode("\n") + self.encode(SYSTEM))

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def message(self, role: str, body: list) -> None:
        self.rows += [SPECIAL.index("<|im_start|>"), *self.encode(role), *self.encode("\n")]
        self.rows += [*body, STOP, *self.encode("\n")]

    def ask(self, heard: torch.Tensor) -> list:
        """Adds a question; returns the prompt of its response."""
        self.message("user", [BEGIN, *heard, END])
        return [*self.rows, SPECIAL.index("<|im_start|>"), *self.encode("assistant"), *self.encode("\n")]


def conversation(model, tokenizer, heard: list[torch.Tensor]) -> list[Run] | None:
    """The responses of both turns; None if a choice is narrow or a response says little."""
    prompts = Prompts(tokenizer)
    runs = []
    for rows in heard:
        run = Run(model, prompts.ask(rows))
        order = run.order()
        turns = sum(a != b for a, b in itertools.pairwise(order))
        few = len(run.text()) < 4 or len(run.heard()) < 9 or len(set(run.ids)) < 9 or turns < 4
        if few or run.ids[-1] != STOP or run.lead < MARGIN:
            return None
        runs.append(run)
        # The codes are positions of later prompts, as they were said.
        prompts.message("assistant", run.ids[:-1])
    return runs


def spectrogram(extractor, audio: torch.Tensor) -> torch.Tensor:
    """Whole windows, the last one filled with silence."""
    window = 2 * models.ENCODER["max_source_positions"]
    silence = -len(audio) % (window * extractor.hop_length)
    return signals.mel_streaming(extractor, np.pad(audio.numpy(), (0, silence)), window)


def config() -> dict:
    """Contents of config.json."""
    text = {"model_type": "qwen2", "hidden_act": "silu", "rope_theta": models.THETA, **models.TEXT}
    encoder = {"model_type": "whisper", "activation_function": "gelu", "scale_embedding": False, **models.ENCODER}
    names = {"architectures": ["CovoAudioForConditionalGeneration"], "model_type": "covo_audio"}
    rest = {"audio_token_index": TEXT_IDS, "adapter_downsample": 8}
    return {**names, **rest, "llm_config": text, "encoder_config": encoder}


def sound_config() -> dict:
    """Contents of token2wav/config.json."""
    transformer = {name: size for name, size in models.FLOW.items() if name != "input"}
    transformer |= {"modulation": True, "alibi_bias": False, "rotary_bias": True, "qk_norm": False}
    latent = {"upsample_factor": models.RATIO, "token_vocab_size": CODES, "token_input_dim": models.FLOW["input"]}
    latent |= {"z_dim": models.LATENTS, "spkr_embed_dim": models.SPEAKER, "transformer": transformer}
    wavegan = {**models.VOCODER, "resblock": "1", "activation": "snakebeta", "snake_logscale": True}
    wavegan |= {"latent_dim": models.LATENTS, "causal": True}
    return {
        "data": {"audio": {"sample_rate": 24_000}},
        "model": {"type": "Token2WavDecoder", "token2latent": latent, "wavegan": wavegan},
        "inference": {"s_steps": models.POINTS, "cfg_alpha": models.GUIDANCE, "rescale_logits": False},
    }


def write_sound(model: models.Token2Wav, voice: models.Voice, scale: torch.Tensor) -> None:
    """Writes the folder of the sound."""
    home = FOLDER / "checkpoint" / "token2wav"
    (home / "prompt").mkdir(parents=True, exist_ok=True)
    (home / "config.json").write_text(json.dumps(sound_config(), indent=1) + "\n")
    torch.save({"model": models.stored(model)}, home / "model.pt")
    np.save(home / "global_mean_var.npy", scale.reshape(1, -1).numpy())
    np.save(home / "prompt" / "prompt_token.npy", voice.codes[None].numpy())
    np.save(home / "prompt" / "prompt_latent.npy", voice.latents[None].numpy())
    np.save(home / "prompt" / "speaker_embed.npy", voice.speaker[None].numpy())


@torch.no_grad()
def main() -> None:
    """Makes the fixture."""
    torch.set_num_threads(1)
    tokenizer = tokens.build(TEXT_IDS, SPECIAL, [*tokens.TEXT, *[SYSTEM] * 50])
    extractor = WhisperFeatureExtractor(feature_size=models.ENCODER["num_mel_bins"])
    audio = [torch.from_numpy(signals.speech(samples, 21 + at)) for at, samples in enumerate(QUESTIONS)]
    mels = [spectrogram(extractor, wave) for wave in audio]
    keep = torch.zeros(models.VOCABULARY, dtype=torch.bool)
    keep[tokens.speakable(tokenizer, SPECIAL)] = True
    keep[TEXT_IDS:] = True
    model = models.CovoAudio()
    first, last = (int(number) for number in [*sys.argv[1:], "0", "4000"][:2])
    for seed in range(first, last):
        models.draw(model, seed)
        weight = model.llm.lm_head.weight
        weight[~keep] *= 0.4
        weight[STOP] *= 6
        for p in model.parameters():
            p.copy_(p.to(torch.bfloat16).float())
        heard = [model.hear(mel, len(wave) // extractor.hop_length) for mel, wave in zip(mels, audio, strict=True)]
        runs = conversation(model, tokenizer, [rows for _, rows in heard])
        if runs is not None:
            break
    else:
        raise SystemExit("no seed gives such responses")
    home = FOLDER / "checkpoint"
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.json").write_text(json.dumps(config(), indent=1) + "\n")
    (home / "preprocessor_config.json").write_text(json.dumps(extractor.to_dict(), indent=1, sort_keys=True) + "\n")
    stored = {name: p.to(torch.bfloat16).contiguous() for name, p in model.state_dict().items()}
    save_file(stored, home / "model.safetensors")
    tokenizer.save(str(home / "tokenizer.json"))
    sound, voice = models.Token2Wav(), models.Voice(RECORDED)
    models.draw(sound, 3)
    rng = torch.Generator().manual_seed(7)
    mean, variance = torch.randn(models.LATENTS, generator=rng), 0.5 + torch.rand(models.LATENTS, generator=rng)
    write_sound(sound, voice, torch.cat([mean, variance]))

    tensors = {}
    for at, run in enumerate(runs):
        name = f"turn{at}"
        ids = [row if isinstance(row, int) else AUDIO for row in run.prompt]
        tensors[f"{name}.audio"], tensors[f"{name}.mel"] = audio[at], mels[at]
        tensors[f"{name}.encoded"], tensors[f"{name}.rows"] = heard[at]
        for key, numbers in (("prompt", ids), ("said", run.ids), ("heard", run.heard())):
            tensors[f"{name}.{key}"] = torch.tensor(numbers, dtype=torch.int32)
        tensors[f"{name}.logits"] = torch.stack(run.logits)
    codes = torch.randint(CODES, (SPOKEN,), generator=rng).tolist()
    tensors["sound.codes"] = torch.tensor(codes, dtype=torch.int32)
    for name, windows in (("whole", (0, SPOKEN, 0)), ("windowed", WINDOWS)):
        found = models.latents(sound.token2latent, voice, codes, windows) * variance.sqrt() + mean
        tensors[f"sound.{name}"], tensors[f"sound.{name}_samples"] = found, sound.wavegan(found)

    def distance(name: str) -> float:
        whole, windowed = tensors[f"sound.whole{name}"], tensors[f"sound.windowed{name}"]
        return round(float((windowed - whole).square().mean().sqrt() / whole.square().mean().sqrt()), 4)

    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, FOLDER / "expected.safetensors")
    facts = {
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "transformers", "tokenizers")},
        "oracle": "models.py, a derivation",
        "seed": seed,
        "penalty": PENALTY,
        "windows": WINDOWS,
        "windowed_from_whole": {"latents": distance(""), "samples": distance("_samples")},
        "runs": {
            f"turn{at}": {"text": tokenizer.decode(run.text()), "order": run.order(), "lead": round(run.lead, 5)}
            for at, run in enumerate(runs)
        },
        "std": {name: round(float(tensor.float().std()), 4) for name, tensor in tensors.items()},
    }
    (FOLDER / "expected.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
