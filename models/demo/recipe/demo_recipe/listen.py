"""Step `listen`: answers that the codec was not trained with, as the teacher, its locked targets, the codec and the
talker say them.

Writes `listen/LEVEL/NN.wav` and `listen/texts.json`. `python -m demo_recipe.evaluate.hear WORK/listen` lets the judge
of `make eval-model` hear them, in its own Python: what each level costs is then known without a gateway.
"""

from __future__ import annotations

import json
import wave
from pathlib import Path

import numpy as np
import torch

from . import codec_train, speaking
from .config import FRAME, SAMPLE_RATE

MOST = 60  # answers


def make(work: Path, device: torch.device) -> None:
    """Levels whose weights are not there yet are left away."""
    said = [(answer, target) for answer, target, _ in codec_train.targets(work, held_out=True)]
    said = said[:: max(1, len(said) // MOST)][:MOST]
    texts = [answer.text for answer, _ in said]
    folder = work / "listen"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "texts.json").write_text(json.dumps(texts, indent=0) + "\n")
    codec = (
        codec_train.load(work, device) if any((work / f"{name}.pt").exists() for name in ("codec", "tuned")) else None
    )
    spoken = speaking.say(speaking.load(work, device), texts) if codec and (work / "talker.pt").exists() else None
    for number, (answer, target) in enumerate(said):
        assert answer.samples is not None, "the step `answers` makes sound"
        levels = {"natural": answer.samples.astype(np.float32) / 32768, "locked": target.astype(np.float32)}
        with torch.no_grad():
            if codec:
                levels["codec"] = codec.decode(torch.from_numpy(answer.codes).long()[None].to(device))[0].cpu().numpy()
            if codec and spoken:
                codes = spoken[number].to(device)
                levels["talker"] = (
                    codec.decode(codes[None])[0].cpu().numpy() if len(codes) > 1 else np.zeros(FRAME, np.float32)
                )
        for level, sound in levels.items():
            save(folder / level / f"{number:02}.wav", sound)
    print(f"listen: {len(said)} answers in {folder}, as {', '.join(levels)} says them", flush=True)


def save(path: Path, sound: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE)
        file.writeframes((np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes())
