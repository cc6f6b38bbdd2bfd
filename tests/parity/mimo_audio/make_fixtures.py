"""Makes the fixture of MiMo-Audio with the derivation in models.py: `python make_fixtures.py`.

A small random checkpoint in the files of the two published repositories: a conversation of two turns, heard and
written, with mel frames, codes and rows of what was heard, logits of text and codes, and samples in windows. See
../README.md for the versions that this needs.
"""

import importlib.metadata
import json
import sys
from pathlib import Path

import models
import torch
from safetensors.torch import save_file

HOME = Path(__file__).resolve().parent
sys.path.insert(0, str(HOME.parent))
import signals  # noqa: E402
import tokens  # noqa: E402

FOLDER = HOME.parent / "fixtures" / "mimo_audio"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|sosp|>", "<|eosp|>", "<|empty|>", "<|Human|>"]
SPECIAL += ["<|SpeechLM|>", "<|sostm|>", "<|eostm|>", "<|eot|>", "<think>", "</think>"]
TEXT_IDS = 300
EMPTY, TEXT_END = SPECIAL.index("<|empty|>"), SPECIAL.index("<|eot|>")
ENDS = {SPECIAL.index(name) for name in ("<|endoftext|>", "<|im_end|>", "<|eostm|>")}
FORBIDDEN = {SPECIAL.index(name) for name in ("<|sosp|>", "<|eosp|>", "<|sostm|>", "<|im_start|>")}
INSTRUCTIONS = "be brief and kind"
# Codes of a window, as the tests set them.
WINDOWS = {"left": 12, "right": 4, "new": 5}
# Least lead of a choice.
MARGIN = 3e-3


class Run:
    """A greedy response: its positions, and what was seen on the way."""

    def __init__(self, model: models.MiMoAudio, prompt: list, most: int):
        self.prompt, self.lead = prompt, float("inf")
        self.said: list[int | torch.Tensor] = []
        self.text_logits: list[torch.Tensor] = []
        self.code_logits: list[torch.Tensor] = []
        self.patches: list[torch.Tensor] = []
        allowed = torch.zeros(models.VOCABULARY, dtype=torch.bool)
        allowed[:TEXT_IDS] = True
        allowed[list(FORBIDDEN)] = False
        while len(self.said) < 40:
            hidden = model.hidden(prompt + self.said)[-1]
            logits = model.lm_head(hidden)
            self.text_logits.append(logits)
            self.leads(logits.masked_fill(~allowed, -torch.inf))
            number = int(logits.masked_fill(~allowed, -torch.inf).argmax())
            if number == EMPTY:
                codes, logits = model.codes(hidden)
                for scores in logits:
                    self.leads(scores[:-1])
                self.code_logits.append(torch.cat(logits))
                self.patches.append(codes)
                self.said.append(codes)
            elif number in ENDS or len(self.text()) >= most:
                return
            else:
                self.said.append(number)

    def leads(self, logits: torch.Tensor) -> None:
        two = logits.topk(2).values
        self.lead = min(self.lead, float(two[0] - two[1]))

    def text(self) -> list[int]:
        return [position for position in self.said if isinstance(position, int)]

    def pattern(self) -> str:
        return "".join("t" if isinstance(position, int) else "p" for position in self.said)


def grouped(codes: torch.Tensor) -> list[torch.Tensor]:
    """Patches of a recording, whose last frame fills the last one."""
    missing = -len(codes) % models.FRAMES
    return list(torch.cat([codes, codes[-1:].expand(missing, -1)]).split(models.FRAMES))


class Prompts:
    """Prompts of a spoken dialogue, as the reference lays them out."""

    def __init__(self, tokenizer):
        self.tokenizer, self.asked = tokenizer, False
        self.positions: list[int | torch.Tensor] = []

    def add(self, *pieces: str) -> None:
        for piece in pieces:
            special = [SPECIAL.index(piece)] if piece in SPECIAL else None
            self.positions += special or self.tokenizer.encode(piece, add_special_tokens=False).ids

    def ask(self, patches: list[torch.Tensor] | None, text: str = "") -> list:
        """Adds a question; returns the prompt of its response."""
        self.add("<|im_start|>", "user\n")
        if not self.asked:
            self.add(INSTRUCTIONS, "\n\n")
        self.asked = True
        if patches is not None:
            self.add("<|sosp|>")
            self.positions += patches
            self.add("<|eosp|>")
        if text:
            self.add(text)
        self.add("<|im_end|>", "\n", "<|im_start|>", "assistant\n")
        return [*self.positions, SPECIAL.index("<|sostm|>")]

    def answer(self, run: Run) -> None:
        self.add("<|sostm|>")
        self.positions += run.said
        self.add("<|eostm|>", "<|im_end|>", "\n")


def conversation(model, sound, tokenizer, audio: torch.Tensor) -> tuple[list[Run], dict] | None:
    """The responses of both turns, and what was heard; None if a choice is narrow or a response says little."""
    mel = sound.mel(audio)
    encoded = sound.encoder(mel)
    codes, lead = sound.encoder.quantize(encoded)
    patches = grouped(codes)
    prompts = Prompts(tokenizer)
    first = Run(model, prompts.ask(patches), 6)
    if not 6 <= first.pattern().count("p") <= 14 or first.pattern().count("tp") < 2 or first.lead < MARGIN:
        return None
    prompts.answer(first)
    second = Run(model, prompts.ask(None, "the quick brown fox"), 4)
    if not 3 <= second.pattern().count("p") <= 10 or len(second.said) >= 40 or second.lead < MARGIN:
        return None
    if lead < MARGIN or TEXT_END in first.text() + second.text():
        return None
    rows = torch.stack([model.patch(patch) for patch in patches])
    return [first, second], {"mel": mel, "encoded": encoded, "codes": codes, "rows": rows}


@torch.no_grad()
def main() -> None:
    """Makes the fixture."""
    torch.set_num_threads(1)
    tokenizer = tokens.build(TEXT_IDS, SPECIAL)
    sound = models.draw(models.Tokenizer(), 1)
    # Neither silent nor clipped.
    bias = sound.decoder.vocoder.head.out.bias
    bias[: models.N_FFT // 2 + 1].sub_(2.8)
    bias.copy_(bias.to(torch.bfloat16).float())
    model = models.MiMoAudio()
    keep = torch.zeros(models.VOCABULARY, dtype=torch.bool)
    keep[tokens.speakable(tokenizer, SPECIAL)] = True
    audio = torch.from_numpy(signals.speech(3511, 3))
    first, last = (int(number) for number in [*sys.argv[1:], "0", "4000"][:2])
    for seed in range(first, last):
        models.draw(model, seed)
        model.lm_head.weight[~keep] *= 0.4
        model.lm_head.weight[EMPTY] *= 12
        model.lm_head.weight.copy_(model.lm_head.weight.to(torch.bfloat16).float())
        found = conversation(model, sound, tokenizer, audio)
        if found is not None:
            break
    else:
        raise SystemExit("no seed gives such responses")
    runs, heard = found
    home = FOLDER / "checkpoint"
    folder = home / "MiMo-Audio-Tokenizer"
    folder.mkdir(parents=True, exist_ok=True)
    config = {"architectures": ["MiMoAudioModel"], "model_type": "qwen2", "hidden_act": "silu", **models.MODEL}
    for path, content in ((home, config), (folder, {"model_type": "mimo_audio_tokenizer", **models.TOKENIZER})):
        (path / "config.json").write_text(json.dumps(content, indent=1) + "\n")
    for path, module in ((home, model), (folder, sound)):
        stored = {name: p.to(torch.bfloat16).contiguous() for name, p in module.state_dict().items()}
        save_file(stored, path / "model.safetensors")
    tokenizer.save(str(home / "tokenizer.json"))

    tensors = {"turn0.audio": audio} | {f"turn0.{name}": tensor for name, tensor in heard.items()}
    for name, run in zip(("turn0", "turn1"), runs, strict=True):
        for key, positions in (("prompt", run.prompt), ("said", run.said)):
            ids = [position if isinstance(position, int) else EMPTY for position in positions]
            patches = [position.flatten() for position in positions if not isinstance(position, int)]
            tensors[f"{name}.{key}_text"] = torch.tensor(ids, dtype=torch.int32)
            tensors[f"{name}.{key}_codes"] = torch.stack(patches).to(torch.int32)
        tensors[f"{name}.text_logits"] = torch.stack(run.text_logits)
        tensors[f"{name}.code_logits"] = torch.stack(run.code_logits)
        codes = torch.cat(run.patches)
        tensors[f"{name}.samples"] = sound.decode_windows(codes, **WINDOWS)
        if name == "turn0":
            tensors["turn0.whole"] = sound.decode(codes)
    tensors["turn0.codes"] = tensors["turn0.codes"].to(torch.int32)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, FOLDER / "expected.safetensors")
    facts = {
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "transformers", "tokenizers")},
        "oracle": "models.py, a derivation",
        "seed": seed,
        "windows": WINDOWS,
        "runs": {
            name: {"text": tokenizer.decode(run.text()), "order": run.pattern(), "lead": round(run.lead, 5)}
            for name, run in zip(("turn0", "turn1"), runs, strict=True)
        },
        "std": {name: round(float(tensor.float().std()), 4) for name, tensor in tensors.items()},
    }
    (FOLDER / "expected.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
