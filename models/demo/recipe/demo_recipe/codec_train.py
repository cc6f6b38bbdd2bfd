"""Step `codec`: trains code2wav on the answers' codes and targets.

Regression on spectra alone suffices for locked targets: on complex ones first, so that pulses come where they belong,
then mostly on their envelopes, which is what is understood and what a small decoder gets wrong while it follows the
fine structure. With `scale.adversarial` the discriminators join after a third of the run: natural targets need them.
What a talker says is never quite what the decoder was taught, so part of the codes is spoiled.

Step `tune`: goes on with codes whose loudness is the talker's own (`align.py`) in most excerpts, since it does not err
by chance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from . import answers, config
from .answers import Answer
from .codec import Codec
from .codes import PHONEMES, SIZES, VOICED, code
from .config import CODEBOOKS, FRAME
from .discriminators import Discriminators
from .scale import Scale
from .spectra import Distance
from .training import Run, read

WINDOW = 12  # frames of a training excerpt
SKIPPED = 2  # frames at the start of an excerpt from mid-sentence that the loss ignores: their past is missing
CRITICS_AFTER = 1 / 3  # of the run
# From here on, and from the start in a run that begins with a decoder of these codes, what is said counts most:
# envelopes and their variance by so much more than the rest, complex spectra by so much less than before.
REFINED_AFTER, ENVELOPE, VARIANCE, PHASES = 0.4, 16, 12, 0.2
REFINED_RATE = 0.5  # of the scale's, for a run that begins with a decoder of these codes
# Of the scale's, for `tune`: at 0.5 envelopes were half as far off again after 1,100 steps as before.
TUNED_RATE = 0.15
STOPS = "bdkptɡʧʤ"
# Weight of the envelopes of a stop's frame beside another's: its burst is short and faint, and all that tells "cup"
# from "top".
STOPPED = 3.0
HELD_OUT = 25  # one answer in so many is not trained, to listen to

# Of a frame of an excerpt that is spoiled, how often each book's code is another: about as often as a talker's that
# runs freely. Without its pitch a frame cannot be made.
SPOILED = (0.01, 0.03, 0.04, 0.02, 0.06, 0.06)
UNSPOILED = 0.4  # share of the excerpts that are left as they are
ALIGNED = 0.6  # share of the excerpts of `tune` whose loudness is the talker's


@dataclass
class Targets:
    """All that is trained, end to end."""

    wave: Tensor  # f16 [frames * FRAME]
    codes: Tensor  # u8 [frames, CODEBOOKS]
    aligned: Tensor | None  # the same as the talker says them, to `tune` with
    starts: Tensor  # first frame of each sentence
    often: Tensor  # f32, how often each sentence is said, relative to others

    @staticmethod
    def load(work: Path, tunes: bool = False) -> Targets:
        said, wave, aligned = zip(
            *((answer, wave, own) for answer, wave, own in targets(work, held_out=False)), strict=True
        )
        if tunes and any(own is None for own in aligned):
            raise SystemExit(f"some of {work}/answers are not in {work}/aligned: run the step `align` first")
        lengths = torch.tensor([len(answer.codes) for answer in said])
        return Targets(
            torch.from_numpy(np.concatenate(wave)),
            torch.from_numpy(np.concatenate([answer.codes for answer in said])),
            torch.from_numpy(np.concatenate(aligned)) if tunes else None,
            lengths.cumsum(0) - lengths,
            torch.tensor(answers.often([answer.text for answer in said])).float(),
        )

    def excerpts(self, count: int) -> tuple[Tensor, Tensor, int]:
        """Waves and codes of `count` excerpts; the first half are sentence starts, as many as the last number says.
        Sentences come as often as they are said.
        """
        last = len(self.codes) - WINDOW
        opening = count // 2
        lengths = self.starts.diff(append=torch.tensor([len(self.codes)]))
        # A long sentence has more places to begin at.
        chosen = torch.cat(
            [torch.multinomial(p, n, True) for p, n in ((self.often, opening), (self.often * lengths, count - opening))]
        )
        place = torch.rand(count) * lengths[chosen]
        place[:opening] = 0
        at = (self.starts[chosen] + place.long()).clamp(max=last).tolist()
        wave = torch.stack([self.wave[k * FRAME : (k + WINDOW) * FRAME] for k in at]).float()
        of = [self.codes if self.aligned is None or torch.rand(()) >= ALIGNED else self.aligned for _ in at]
        return wave, torch.stack([codes[k : k + WINDOW] for codes, k in zip(of, at, strict=True)]).long(), opening


def targets(work: Path, held_out: bool) -> Iterator[tuple[Answer, np.ndarray, np.ndarray | None]]:
    """Each answer that is trained, or each other one, with its target wave (f16) and its aligned codes, as far as they
    are made.
    """
    for path in sorted((work / "targets").glob("?????.npz")):
        wave, aligned, end = np.load(path)["wave"], answers.aligned(work, path.stem), 0
        for number, answer in enumerate(answers.shard(work / "answers" / path.name)):
            start, end = end, end + len(answer.codes)
            if (number % HELD_OUT == HELD_OUT - 1) == held_out:
                yield answer, wave[start * FRAME : end * FRAME], None if aligned is None else aligned[start:end]


def importance(codes: Tensor) -> Tensor:
    """Weight `[batch, frames]` of each frame of codes `[batch, frames, CODEBOOKS]` where envelopes are compared."""
    stops = torch.tensor([code(stop) for stop in STOPS], device=codes.device)
    return torch.where(torch.isin(codes[..., 0], stops), STOPPED, 1.0)


def spoiled(right: Tensor) -> Tensor:
    """Codes `[batch, frames, CODEBOOKS]` as a talker that runs freely might say them: each book errs by itself, so that
    the decoder leans on no book alone. The phonemes become any other, the rest a neighbour's.
    """
    shape, device = right.shape, right.device
    chance = torch.tensor(SPOILED, device=device) * (torch.rand(shape[0], 1, 1, device=device) >= UNSPOILED)
    wrong = torch.rand(shape, device=device) < chance
    step = torch.randint(1, 3, shape, device=device) * (1 - 2 * torch.randint(0, 2, shape, device=device))
    near = right + step * torch.tensor([1, 1, 1, 1, VOICED, VOICED], device=device)
    anything = (torch.rand(shape, device=device) * len(PHONEMES)).long()
    other = torch.where(torch.arange(CODEBOOKS, device=device) < 2, anything, near)
    return torch.where(wrong, other.clamp(torch.zeros_like(right), torch.tensor(SIZES, device=device) - 1), right)


def train(work: Path, scale: Scale, device: torch.device, warm_start: Path | None = None) -> None:
    """Trains to the scale's last step; goes on where an earlier run stopped. `warm_start` is a checkpoint folder to
    begin from.
    """
    torch.manual_seed(scale.seed)
    codec = Codec()
    if warm_start:
        codec.warm_start(warm_start)
    refines = warm_start is not None and config.is_own(warm_start)
    rate = scale.codec_rate * (REFINED_RATE if refines else 1)
    run = Run("codec", work / "codec.pt", codec.to(device), rate, scale.codec_steps, scale.threads)
    _train(run, codec, Targets.load(work), refines, scale, device)


def tune(work: Path, scale: Scale, device: torch.device, warm_start: Path | None = None) -> None:
    """Trains the work folder's codec, or that of a checkpoint folder where it has none, with the talker's loudness.
    Writes `tuned.pt`.
    """
    torch.manual_seed(scale.seed)
    codec = Codec()
    if warm_start and not (work / "codec.pt").exists():
        codec.warm_start(warm_start)
    else:
        codec.load_state_dict(read(work, "codec.pt", "codec")["ema"])
    run = Run(
        "tuned", work / "tuned.pt", codec.to(device), scale.codec_rate * TUNED_RATE, scale.tune_steps, scale.threads
    )
    _train(run, codec, Targets.load(work, tunes=True), True, scale, device)


def _train(run: Run, codec: Codec, data: Targets, refines: bool, scale: Scale, device: torch.device) -> None:
    distance = Distance().to(device)
    critics = Discriminators().to(device) if scale.adversarial else None
    if critics:
        run.add("critics", critics, scale.codec_rate / 2)
    print(f"{run.name}: {len(data.codes) * 0.08 / 3600:.2f} h of speech, {len(data.starts)} answers", flush=True)
    wave_of = torch.compile(codec.wave, dynamic=False) if scale.compile else codec.wave
    for _ in run:
        wanted, codes, opening = data.excerpts(scale.codec_batch)
        wanted = wanted.to(device)
        # Not in bf16: its rounding in the decoder's backward pass keeps the complex spectra from being learned at all.
        made = wave_of(codec.contextual(spoiled(codes.to(device))))
        length, counts = made.shape[1], importance(codes).to(device)
        parts = [
            distance(made[:opening], wanted[:opening, :length], counts[:opening]),
            distance(
                made[opening:, SKIPPED * FRAME :],
                wanted[opening:, SKIPPED * FRAME : length],
                counts[opening:, SKIPPED:],
            ),
        ]
        mel, envelope, variance, wave = (sum(p) / 2 for p in zip(*parts, strict=True))
        phases = 2 * scale.wave_weight * wave
        refined = PHASES * phases + ENVELOPE * envelope + VARIANCE * variance
        loss = mel + (refined if refines or run.done() > REFINED_AFTER else phases)
        report = {"mel": mel, "envelope": envelope, "variance": variance, "wave": wave}
        if critics and run.done() > CRITICS_AFTER:
            cut = torch.randint(0, length - 8 * FRAME, ()).item()
            real, fake = wanted[:, cut : cut + 8 * FRAME], made[:, cut : cut + 8 * FRAME]
            run.update("critics", critics.loss(real, fake.detach()))
            fooled, matched = critics.against(real, fake)
            loss = loss + fooled + 2 * matched
            report |= {"fooled": fooled, "matched": matched}
        run.update("main", loss)
        run.report(report)


def load(work: Path, device: torch.device) -> Codec:
    """The averaged weights."""
    codec = Codec().to(device).eval()
    codec.load_state_dict(weights(work))
    return codec


def weights(work: Path) -> dict[str, Tensor]:
    """The averaged weights by name: of `tune`, where it was run."""
    file = "tuned.pt" if (work / "tuned.pt").exists() else "codec.pt"
    return read(work, file, "codec")["ema"]
