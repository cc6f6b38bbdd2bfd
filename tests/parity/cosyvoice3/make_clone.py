"""Makes the fixture of speech in a cloned voice: `python make_clone.py`, after make_fixtures.py and make_voice.py.

The derivation in models.py on the weights of ../fixtures/cosyvoice3, with the codes, mel frames and speaker's vector
that make_voice.py has made of a recording: codes of texts behind the recording's, and mel frames of codes behind them.
As in the reference's modes: `zero_shot` continues the codes and the transcript, `cross_lingual` (no transcript) and
`instruct2` neither of them, and the flow always the voice.
"""

import importlib.metadata
import json
from pathlib import Path

import models
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from utterances import MARK, say

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
FOLDER = FIXTURES / "cosyvoice3_clone"
TRANSCRIPT = "the sea"
# Codes of a chunk, and of the recording's end that the flow continues.
CHUNK = models.CHUNK // 2
# Text ids below the marks.
WORDS = 250


def trained(module: torch.nn.Module, path: Path) -> torch.nn.Module:
    """Loads a file's weights; a tied head is in none."""
    stored = {name: tensor.float() for name, tensor in torch.load(path).items()}
    absent, others = module.load_state_dict(stored, strict=False)
    assert not others and all("lm_head" in name for name in absent), (absent, others)
    return module.eval()


@torch.no_grad()
def main() -> None:
    """Makes the fixture."""
    torch.set_num_threads(1)
    checkpoint = FIXTURES / "cosyvoice3" / "checkpoint"
    language_model = trained(models.LanguageModel(), checkpoint / "llm.pt")
    flow = trained(models.Flow(), checkpoint / "flow.pt")
    tokenizer = Tokenizer.from_file(str(checkpoint / "CosyVoice-BlankEN" / "tokenizer.json"))
    voice = load_file(FIXTURES / "cosyvoice3_voice" / "expected.safetensors")
    recorded, recording, speaker = voice["codes"].tolist(), voice["mel"], voice["speaker"]
    rng = torch.Generator().manual_seed(6)

    def ids(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    default, told = [[*ids(text), MARK] for text in ("You are a helpful assistant.", "be kind")]
    tensors, said = {}, {}
    for name, header, codes, count, streamed in (
        ("zero_shot", default + ids(TRANSCRIPT), recorded, 4, False),
        ("zero_shot_streamed", default + ids(TRANSCRIPT), recorded, 14, True),
        ("cross_lingual", default, [], 2, False),
        ("cross_lingual_streamed", default, [], 9, True),
        ("instruct2", told, [], 2, False),
        ("instruct2_streamed", told, [], 12, True),
    ):
        text = torch.randint(0, WORDS, (count,), generator=rng).tolist()
        said[name] = say(language_model, header, text, codes, streamed)
        tensors[f"{name}.text"] = torch.tensor(text, dtype=torch.int32)
        tensors[f"{name}.heard"] = torch.tensor(said[name]["heard"], dtype=torch.int32)
    # Whole chunks of the recording, counted from its end: no chunk has both.
    before = len(recorded) // CHUNK * CHUNK
    codes = torch.randint(0, models.CODES, (63,), generator=rng).tolist()
    frames = flow(recorded[-before:] + codes, recording[-2 * before :], speaker, 100)
    tensors["frames.codes"] = torch.tensor(codes, dtype=torch.int32)
    tensors["frames.mel"] = frames[2 * before :]
    FOLDER.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, FOLDER / "expected.safetensors")
    facts = {
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "transformers", "tokenizers")},
        "oracle": "models.py, a derivation, on the outputs of make_voice.py",
        "transcript": TRANSCRIPT,
        "recorded": {"codes": len(recorded), "continued": before},
        "runs": {name: {"heard": len(run["heard"]), "said": len(run["said"])} for name, run in said.items()},
        "std": {"frames.mel": round(float(tensors["frames.mel"].std()), 4)},
    }
    (FOLDER / "expected.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
