"""Makes the fixture of Fun-Audio-Chat with the derivation in models.py: `python make_fixtures.py`.

A small random checkpoint in the files of the published folder, with the flow and the vocoder of CosyVoice3's fixture:
a conversation of two spoken turns, with mel frames and rows of what was heard, ids, logits of text and of codes, and
the mel frames of the codes. See ../README.md for the versions that this needs.
"""

import importlib.metadata
import importlib.util
import json
import shutil
import sys
from pathlib import Path

import models
import torch
from models import EOS, GROUP
from safetensors.torch import save_file
from transformers import DynamicCache, WhisperFeatureExtractor

HOME = Path(__file__).resolve().parent
sys.path.insert(0, str(HOME.parent))
import signals  # noqa: E402
import tokens  # noqa: E402

FIXTURES = HOME.parent / "fixtures"
FOLDER = FIXTURES / "fun_audio_chat"
SOUND = "Fun-CosyVoice3-0.5B-2512"
SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|AUDIO|>",
    "<|audio_bos|>",
    "<|audio_eos|>",
    "<|audio_pad|>",
]
SPECIAL += ["<|sil|>"]
ADDED = ["<tool_call>", "</tool_call>"]
TEXT_IDS = 300
BEGIN, END = SPECIAL.index("<|audio_bos|>"), SPECIAL.index("<|audio_eos|>")
AUDIO, SILENT, STOP = SPECIAL.index("<|AUDIO|>"), SPECIAL.index("<|sil|>"), SPECIAL.index("<|im_end|>")
SYSTEM = "You are asked to generate both text and speech tokens at the same time."
INSTRUCTIONS = "be brief"
VOICE = "\u4e2d\u6587\u5973"
PENALTY = 1.2
# Samples of the questions: 57 mel frames after a window, and 56.
QUESTIONS = (22_000, 9_000)
# Least lead of a choice.
MARGIN = 3e-3
STEPS = 30


class Run:
    """A greedy response: its ids and codes, and what was seen on the way."""

    def __init__(self, model: models.FunAudioChat, prompt: list):
        self.prompt, self.lead = prompt, float("inf")
        self.ids: list[int] = []
        self.drawn: list[list[int]] = []
        self.spoken: list[list[int]] = []
        self.text_logits: list[torch.Tensor] = []
        self.code_logits: list[torch.Tensor] = []
        self.ended_speech = False
        allowed = torch.zeros(models.VOCABULARY, dtype=torch.bool)
        allowed[len(SPECIAL) : TEXT_IDS + len(ADDED)] = True
        allowed[[SILENT, END, STOP]] = True
        head, cache, speaks = models.Head(model), DynamicCache(), False
        x = torch.stack([model.embed([row])[0] if isinstance(row, int) else row for row in prompt])
        text = model.embed([row if isinstance(row, int) else AUDIO for row in prompt])
        for step in range(STEPS):
            hidden = model.language_model.model(inputs_embeds=x[None], past_key_values=cache, use_cache=True)
            hidden = hidden.last_hidden_state[0]
            logits = model.language_model.lm_head(hidden[-1])
            codes, scores = head.draw(hidden + text, self.choose)
            self.text_logits.append(logits)
            self.code_logits.append(scores)
            self.drawn.append(codes)
            number = BEGIN
            if step > 0:
                masked = logits.masked_fill(~allowed, -torch.inf)
                self.leads(masked)
                number = int(masked.argmax())
            self.ids.append(number)
            if speaks and EOS in codes:
                speaks, self.ended_speech = False, True
                self.ids[-1] = END if number != STOP else STOP
            elif speaks:
                self.spoken.append(codes)
            if number == STOP:
                return
            x = text = model.embed([self.ids[-1]])
            if speaks:
                x = (text + model.spoken(codes)) / 2
            speaks |= number == BEGIN

    def choose(self, logits: torch.Tensor, group: list[int]) -> int:
        """The likeliest code, less likely if it is one of the response or of its group."""
        said = [code for codes in self.spoken for code in codes] + group
        scores = logits.clone()
        scores[said] = torch.where(scores[said] < 0, scores[said] * PENALTY, scores[said] / PENALTY)
        self.leads(scores)
        return int(scores.argmax())

    def leads(self, logits: torch.Tensor) -> None:
        two = logits.topk(2).values
        self.lead = min(self.lead, float(two[0] - two[1]))

    def text(self) -> list[int]:
        return [number for number in self.ids if number >= len(SPECIAL)]

    def heard(self) -> list[int]:
        return [code for codes in self.spoken for code in codes if code < models.CODES]

    def pattern(self) -> str:
        names = {BEGIN: "(", END: ")", SILENT: "-", STOP: "."}
        return "".join(names.get(number, "t") for number in self.ids)


class Prompts:
    """Prompts of a conversation."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.rows: list[int | torch.Tensor] = []
        self.message("system", self.encode(f"{SYSTEM} {INSTRUCTIONS}"))

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
    for at, rows in enumerate(heard):
        run = Run(model, prompts.ask(rows))
        few = len(run.text()) < 3 or len(run.spoken) < 4 or run.ids[-1] != STOP or run.lead < MARGIN
        few |= max(run.ids) >= TEXT_IDS
        # One response ends its speech before its text, as the model has learnt to; the other one is cut by the stop.
        if few or run.ended_speech != (at == 0) or (at == 0 and SILENT not in run.ids):
            return None
        runs.append(run)
        prompts.message("assistant", run.text())
    return runs


def sound_models():
    """The derivation of CosyVoice3, whose file has the name of this one's."""
    spec = importlib.util.spec_from_file_location("cosyvoice3_models", HOME.parent / "cosyvoice3" / "models.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def config(tokenizer) -> dict:
    """Contents of config.json."""
    text = {"model_type": "qwen3", "hidden_act": "silu", "rope_theta": models.TEXT_THETA, **models.TEXT}
    text |= {"audio_bos_index": BEGIN, "audio_eos_index": END, "sil_index": SILENT, "eos_token_id": STOP}
    head = {"model_type": "qwen3", "hidden_act": "silu", "rope_theta": models.HEAD_THETA, **models.HEAD}
    audio = {"model_type": "funaudiochat_audio_encoder", "activation_function": "gelu", **models.TOWER}
    audio |= {"group_size": GROUP, "codebook_size": models.CODEBOOK, "continuous_features_mode": "replace"}
    audio |= {"bos_token_id": models.BOS, "eos_token_id": EOS, "pad_token_id": models.PAD}
    audio |= {"enable_audio_invert_tower": True, "crq_transformer_config": head}
    names = {"architectures": ["FunAudioChatForConditionalGeneration"], "model_type": "funaudiochat"}
    assert tokenizer.token_to_id("<|AUDIO|>") == AUDIO
    return {
        **names,
        "audio_token_index": AUDIO,
        "hidden_size": models.HIDDEN,
        "audio_config": audio,
        "text_config": text,
    }


@torch.no_grad()
def main() -> None:
    """Makes the fixture."""
    torch.set_num_threads(1)
    tokenizer = tokens.build(TEXT_IDS, SPECIAL)
    tokenizer.add_tokens(ADDED)
    extractor = WhisperFeatureExtractor(feature_size=models.TOWER["num_mel_bins"])
    audio = [torch.from_numpy(signals.speech(samples, 11 + at)) for at, samples in enumerate(QUESTIONS)]
    mels = [signals.mel_streaming(extractor, wave.numpy(), 2 * models.TOWER["n_window"]) for wave in audio]
    keep = torch.zeros(models.VOCABULARY, dtype=torch.bool)
    keep[tokens.speakable(tokenizer, SPECIAL)] = True
    model = models.FunAudioChat()
    first, last = (int(number) for number in [*sys.argv[1:], "0", "4000"][:2])
    for seed in range(first, last):
        models.draw(model, seed)
        weight = model.language_model.lm_head.weight
        weight[~keep] *= 0.4
        weight[[SILENT, STOP]] *= 6
        model.codes()[EOS] *= 1.3
        for scaled in (weight, model.codes()):
            scaled.copy_(scaled.to(torch.bfloat16).float())
        heard = [model.hear(mel) for mel in mels]
        runs = conversation(model, tokenizer, [rows for _, rows in heard])
        if runs is not None:
            break
    else:
        raise SystemExit("no seed gives such responses")
    home = FOLDER / "checkpoint"
    (home / SOUND).mkdir(parents=True, exist_ok=True)
    (home / "config.json").write_text(json.dumps(config(tokenizer), indent=1) + "\n")
    (home / "preprocessor_config.json").write_text(
        json.dumps(extractor.to_dict() | {}, indent=1, sort_keys=True) + "\n"
    )
    stored = {name: p.to(torch.bfloat16).contiguous() for name, p in model.state_dict().items()}
    save_file(stored, home / "model.safetensors")
    tokenizer.save(str(home / "tokenizer.json"))
    for name in ("cosyvoice3.yaml", "flow.pt", "hift.pt"):
        shutil.copyfile(FIXTURES / "cosyvoice3" / "checkpoint" / name, home / SOUND / name)
    sound = sound_models()
    speaker = torch.randn(sound.SPEAKER, generator=torch.Generator().manual_seed(2))
    torch.save({VOICE: {"embedding": speaker[None]}}, home / "new_spk2info.pt")
    flow = sound.Flow()
    flow.load_state_dict({name: p.float() for name, p in torch.load(home / SOUND / "flow.pt").items()})

    tensors = {}
    for at, run in enumerate(runs):
        name = f"turn{at}"
        ids = [row if isinstance(row, int) else AUDIO for row in run.prompt]
        tensors[f"{name}.audio"], tensors[f"{name}.mel"] = audio[at], mels[at]
        tensors[f"{name}.tower"], tensors[f"{name}.rows"] = heard[at]
        for key, numbers in (("prompt", ids), ("said", run.ids), ("drawn", run.drawn), ("heard", run.heard())):
            tensors[f"{name}.{key}"] = torch.tensor(numbers, dtype=torch.int32)
        tensors[f"{name}.text_logits"] = torch.stack(run.text_logits)
        tensors[f"{name}.code_logits"] = torch.cat(run.code_logits)
        tensors[f"{name}.frames"] = flow(run.heard(), torch.zeros(0, sound.MEL), speaker, 4)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, FOLDER / "expected.safetensors")
    facts = {
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "transformers", "tokenizers")},
        "oracle": "models.py, a derivation",
        "seed": seed,
        "penalty": PENALTY,
        "runs": {
            f"turn{at}": {
                "text": tokenizer.decode(run.text()),
                "order": run.pattern(),
                "groups": len(run.spoken),
                "lead": round(run.lead, 5),
            }
            for at, run in enumerate(runs)
        },
        "std": {name: round(float(tensor.float().std()), 4) for name, tensor in tensors.items()},
    }
    (FOLDER / "expected.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
