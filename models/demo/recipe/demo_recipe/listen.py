"""Step `listen`: answers that the codec was not trained with, as the teacher, its locked targets, the codec and the talker say them.

Writes `listen/LEVEL/NN.wav` and `listen/texts.json`. `python -m demo_recipe.evaluate.hear WORK/listen` lets the judge of `make eval-model`
hear them, in its own Python: what each level costs is then known without a gateway.
"""

from __future__ import annotations

import json
import wave
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from . import codec_train, tokenizer
from .config import CODEBOOKS, CODES, FRAME, SAMPLE_RATE
from .export import LONGEST_SPEECH
from .talker import Spoken, Talker

MOST = 60  # answers


def make(work: Path, device: torch.device) -> None:
    """Levels whose weights are not there yet are left away."""
    said = [(answer, target) for answer, target in codec_train.targets(work, held_out=True)]
    said = said[:: max(1, len(said) // MOST)][:MOST]
    folder = work / "listen"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "texts.json").write_text(json.dumps([answer.text for answer, _ in said], indent=0) + "\n")
    codec = codec_train.load(work, device) if (work / "codec.pt").exists() else None
    talker = load_talker(work, device) if (work / "talker.pt").exists() else None
    for number, (answer, target) in enumerate(said):
        levels = {"natural": answer.samples.astype(np.float32) / 32768, "locked": target.astype(np.float32)}
        with torch.no_grad():
            if codec:
                levels["codec"] = codec.decode(torch.from_numpy(answer.codes).long()[None].to(device))[0].cpu().numpy()
            if codec and talker:
                spoken = say(talker, answer.text)
                levels["talker"] = codec.decode(spoken[None])[0].cpu().numpy() if len(spoken) > 1 else np.zeros(FRAME, np.float32)
        for level, sound in levels.items():
            save(folder / level / f"{number:02}.wav", sound)
    print(f"listen: {len(said)} answers in {folder}, as {', '.join(levels)} says them", flush=True)


def load_talker(work: Path, device: torch.device) -> Talker:
    """The averaged weights."""
    words = tokenizer.load(work)
    talker = Talker(words, tokenizer.embeddings(work)).to(device).eval()
    talker.load_state_dict(torch.load(work / "talker.pt", map_location=device, weights_only=True)["ema"])
    talker.words = words
    return talker


def say(talker: Talker, text: str) -> Tensor:
    """The codes `[frames, CODEBOOKS]` that the talker gives a text, each the likeliest after those before it."""
    device = talker.text.device
    words = talker.words.encode(text).ids + [talker.words.token_to_id("<|im_end|>")]
    made = torch.zeros(0, CODEBOOKS, dtype=torch.long, device=device)
    model, predictor = talker.model, talker.model.code_predictor
    books = predictor.get_input_embeddings()
    while len(made) < LONGEST_SPEECH:
        tokens, codes, _ = talker.sequence(Spoken(torch.tensor(words), made.cpu()), made.cpu(), talker.user(None, 8))
        rows = talker.inputs(tokens.to(device), codes.to(device))
        positions = torch.arange(len(rows), device=device).expand(3, 1, -1)
        state = model.model(inputs_embeds=rows[None], position_ids=positions, use_cache=False).last_hidden_state[:, -1]
        scores = model.codec_head(state)[0]
        scores[CODES:] = scores[CODES:].where(
            torch.arange(CODES, len(scores), device=device) == talker.config.codec_eos_token_id, -torch.inf
        )
        code = scores.argmax()
        if code == talker.config.codec_eos_token_id:
            break
        frame, inputs = [code], [state, model.get_input_embeddings()(code[None])]
        for book in range(CODEBOOKS - 1):
            hidden = predictor.model(inputs_embeds=torch.stack(inputs, 1), use_cache=False).last_hidden_state[:, -1]
            frame.append(predictor.lm_head[book](hidden)[0].argmax())
            inputs.append(books[book](frame[-1][None]))
        made = torch.cat([made, torch.stack(frame)[None]])
    return made


def save(path: Path, sound: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE)
        file.writeframes((np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes())
