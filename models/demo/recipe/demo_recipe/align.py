"""Step `align`: the answers' codes with the talker's own loudness, so that the decoder learns what a talker says of it.

The phonemes and their lengths are the teacher's, so that frame by frame the target is what should be heard: what is
called ground-truth aligned where vocoders are trained. Pitch stays the teacher's, too: the decoder has to follow the
pitch that it is given.

Writes `aligned/NNNNN.npy` (u8 `[frames, CODEBOOKS]`) beside each shard of `answers`. A shard that exists is not made
again.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from . import answers, speaking
from .codes import LOUDNESS
from .progress import Progress
from .scale import Scale


def make(work: Path, scale: Scale, device: torch.device) -> None:
    torch.set_num_threads(scale.threads)
    folder = work / "aligned"
    folder.mkdir(exist_ok=True)
    shards = sorted((work / "answers").glob("?????.npz"))
    missing = [path for path in shards if not (folder / path.name).with_suffix(".npy").exists()]
    talker = speaking.load(work, device)
    progress = Progress("aligned", len(shards), done=len(shards) - len(missing))
    for path in missing:
        said = list(answers.shard(path))
        plans = [torch.from_numpy(answer.codes) for answer in said]
        spoken = speaking.say(talker, [answer.text for answer in said], plans)
        codes, own = (np.concatenate(c).astype(np.uint8) for c in (plans, spoken))
        codes[:, LOUDNESS] = own[:, LOUDNESS]
        part = folder / f"{path.stem}.part.npy"
        np.save(part, codes)
        part.rename((folder / path.name).with_suffix(".npy"))
        progress.step(note=f"{len(codes)} frames in the last")
