"""Steps `codec` and `codes`: trains encoder, quantizer and decoder together on the targets; writes the codes of every answer.

Regression on spectra alone suffices for locked targets. With `scale.adversarial` the discriminators join after a third of the
run: natural targets need them. Once the answers' codes are written, training goes on with the decoder alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .codec import Codec
from .config import CODEBOOKS, FRAME
from .discriminators import Discriminators
from .scale import Scale
from .spectra import Distance
from .teacher import FEATURES, PER_FRAME
from .training import Run

WINDOW = 12  # frames of a training excerpt
SKIPPED = 2  # frames at the start of an excerpt from mid-sentence that the loss ignores: their past is missing
UNQUANTIZED = 100  # steps before the quantizer starts, at most a quarter
CRITICS_AFTER = 1 / 3  # of the run, by whichever of its limits is nearer


@dataclass
class Targets:
    """All targets end to end."""

    wave: Tensor  # f16 [frames * FRAME]
    features: Tensor  # f16 [frames * PER_FRAME, FEATURES]
    phonemes: Tensor  # class of each frame
    starts: list[int]  # first frame of each sentence
    texts: list[str]
    names: list[str]  # of the phoneme classes

    @staticmethod
    def load(work: Path) -> Targets:
        waves, features, texts, starts, said, at = [], [], [], [], [], 0
        for path in sorted((work / "targets").glob("?????.npz")):
            kept = np.load(path)
            waves.append(torch.from_numpy(kept["wave"]))
            features.append(torch.from_numpy(kept["features"]))
            lines = json.loads((work / "answers" / path.name).with_suffix(".json").read_text())
            for line, frames in zip(lines, kept["frames"].tolist()):
                texts.append(line["text"])
                starts.append(at)
                said += line["phonemes"]
                at += frames
        names = sorted(set(said))
        index = {name: i for i, name in enumerate(names)}
        return Targets(torch.cat(waves), torch.cat(features), torch.tensor([index[p] for p in said]), starts, texts, names)

    @property
    def frames(self) -> int:
        return len(self.phonemes)

    def excerpts(self, count: int) -> tuple[Tensor, Tensor, Tensor, int]:
        """`count` excerpts; the first half are sentence starts, as many as the last number says."""
        last = self.frames - WINDOW
        opening = count // 2
        at = [s for s in np.random.choice(self.starts, 4 * opening + 4) if s <= last][:opening]
        at += np.random.randint(0, last + 1, count - len(at)).tolist()
        wave = torch.stack([self.wave[k * FRAME : (k + WINDOW) * FRAME] for k in at]).float()
        features = torch.stack([self.features[k * PER_FRAME : (k + WINDOW) * PER_FRAME] for k in at]).float()
        return wave, features, torch.stack([self.phonemes[k : k + WINDOW] for k in at]), opening


def train(work: Path, scale: Scale, device: torch.device) -> None:
    """Trains until the scale's limit; goes on where an earlier run stopped. What codes mean does not change any more once they are
    written: a talker learns them."""
    targets = Targets.load(work)
    written = (work / "codes.pt").exists()
    codec = Codec(FEATURES).to(device)
    distance = Distance().to(device)
    critics = Discriminators().to(device) if scale.adversarial else None
    run = Run("codec", work / "codec.pt", codec, scale.codec_rate, scale.codec_steps, scale.codec_seconds, scale.threads)
    if critics:
        run.add("critics", critics, scale.codec_rate / 2)
    if written:
        # The averaged encoder, quantizer and all, is what wrote them.
        codec.load_state_dict(run.ema)
        codec.encoder.requires_grad_(False)
        print("codec: the codes are written, only the decoder learns", flush=True)
    print(f"codec: {targets.frames * 0.08 / 3600:.2f} h of speech, {len(targets.names)} phonemes", flush=True)
    wave_of = torch.compile(codec.wave, dynamic=False) if scale.compile else codec.wave
    for step in run:
        wanted, features, phonemes, opening = (x.to(device) if isinstance(x, Tensor) else x for x in targets.excerpts(scale.codec_batch))
        vectors = codec.encoder(features)
        error = torch.zeros((), device=device)
        first = vectors
        if step >= min(UNQUANTIZED, scale.codec_steps // 4):
            quantized, codes, error = codec.quantizer(vectors, learn=not written)
            # The first book's own choice, with the encoder's gradient.
            first = vectors + (codec.quantizer.codes[0][codes[..., 0]] - vectors).detach()
            vectors = quantized
        named = codec.phoneme(first)
        # Not in bf16: its rounding in the decoder's backward pass keeps the complex spectra from being learned at all.
        made = wave_of(codec.contextual(vectors))
        length = made.shape[1]
        parts = [
            distance(made[:opening], wanted[:opening, :length]),
            distance(made[opening:, SKIPPED * FRAME :], wanted[opening:, SKIPPED * FRAME : length]),
        ]
        mel, wave = (sum(p) / 2 for p in zip(*parts))
        name = F.cross_entropy(named.flatten(0, 1), phonemes.flatten())
        loss = mel + 2 * wave * scale.wave_weight + error + 0.1 * name
        report = {"mel": mel, "wave": wave, "error": error, "phoneme": name}
        if critics and run.done() > CRITICS_AFTER:
            cut = torch.randint(0, length - 8 * FRAME, ()).item()
            real, fake = wanted[:, cut : cut + 8 * FRAME], made[:, cut : cut + 8 * FRAME]
            run.update("critics", critics.loss(real, fake.detach()))
            fooled, matched = critics.against(real, fake)
            loss = loss + fooled + 2 * matched
            report |= {"fooled": fooled, "matched": matched}
        run.update("main", loss)
        run.report(report)


@torch.no_grad()
def encode(work: Path, device: torch.device) -> None:
    """Writes `codes.pt`: for each answer its text and codes, and each frame's phoneme."""
    targets = Targets.load(work)
    codec = Codec(FEATURES).to(device).eval()
    codec.load_state_dict(torch.load(work / "codec.pt", map_location=device, weights_only=True)["ema"])
    ends = targets.starts[1:] + [targets.frames]
    kept = []
    for text, start, end in zip(targets.texts, targets.starts, ends):
        features = targets.features[start * PER_FRAME : end * PER_FRAME].float().to(device)
        _, codes, _ = codec.quantizer(codec.encoder(features[None]))
        kept.append({"text": text, "codes": codes[0].cpu().to(torch.int16), "phonemes": targets.phonemes[start:end].to(torch.int16)})
    torch.save({"answers": kept, "phonemes": targets.names}, work / "codes.pt")
    used = torch.cat([k["codes"] for k in kept])
    print("codec: codes used in each book:", [len(used[:, book].unique()) for book in range(CODEBOOKS)], flush=True)
