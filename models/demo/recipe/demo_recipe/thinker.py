"""Trains audio tower and thinker: hear a question, write its answer.

Writes into the work folder, and goes on from there when it is started again:

`thinker_state.pt`  everything that training needs to go on, every two minutes
`thinker.pt`        the best averaged weights so far, by questions of held-out voices and phrasings answered right:
                    `{"model": state of Qwen3OmniMoeThinkerForConditionalGeneration, "right": share, "step": step}`
"""

from __future__ import annotations

import copy
import math
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader

from . import questions, thinker_judge, tokenizer
from .features import BINS, WINDOW, Windows, at_hertz, bins_hertz
from .scale import Scale
from .thinker_data import Batches, Template
from .thinker_model import Batch, Thinker, warm_embeddings
from .training import Interrupt, autocast, leave_interrupts_to_parent

WARM_UP = 200  # steps
TRANSCRIPT_WEIGHT = 0.8  # of the questions' CTC loss beside that of the answers
# The same after a warm start: the new head's gradient is four times what is let through, so that answers would hardly
# count.
WARM_TRANSCRIPT_WEIGHT = 0.1
WARM_TRANSCRIPT_UNTIL = (
    1_000  # steps, by which it has risen to `LATER_TRANSCRIPT_WEIGHT`: what is heard wrong is most of what is wrong
)
LATER_TRANSCRIPT_WEIGHT = 0.3
WARPED_SHARE = 0.5  # of turns, whose frequencies are those of a longer or shorter throat, while their pace stays
WARP = 0.13  # of a frequency, at most
TRANSCRIPT_FIRST = (
    3_000  # steps of CTC alone, without which a cold start learns to answer without listening; at most a quarter
)
# Steps after a warm start in which the transcript's head, which no checkpoint has, learns without moving the tower.
HEAD_FIRST = 150
AVERAGE = 0.998  # of the averaged weights that stay at each step
SAY_EVERY, SAVE_EVERY = 20.0, 120.0  # seconds
JUDGE_EVERY = 1_000  # steps, at most an eighth of all
JUDGED_TURNS = 150
LONGEST_STEP = 30.0  # seconds that count as training; the rest of a longer one is a judgement or a machine that slept


def masked(windows: Windows) -> Windows:
    """Two bands of a turn's bins and one stretch of each window replaced by the window's mean, so that no single cue
    decides.
    """
    mel, device = windows.mel, windows.mel.device
    bin_at, frame_at = torch.arange(BINS, device=device), torch.arange(WINDOW, device=device)

    def stretch(count: int, widest: int, places: torch.Tensor) -> torch.Tensor:
        width = (torch.rand(count, 1, device=device) * widest).long()
        start = (torch.rand(count, 1, device=device) * (len(places) - width)).long()
        return (places >= start) & (places < start + width)

    turns = int(windows.turn.max()) + 1
    bands = (stretch(turns, 15, bin_at) | stretch(turns, 15, bin_at))[windows.turn]
    stretches = stretch(len(mel), 12, frame_at)
    hidden = (bands[:, None] | stretches[..., None]) & (frame_at < windows.frames[:, None])[..., None]
    mean = mel.sum((1, 2), keepdim=True) / (windows.frames * BINS)[:, None, None]
    return Windows(torch.where(hidden, mean, mel), windows.frames, windows.turn, windows.first)


def warped(windows: Windows) -> Windows:
    """Some turns with every frequency multiplied by a factor of their own, as by a throat of another length: more
    voices than were recorded.
    """
    turns = int(windows.turn.max()) + 1
    factor = torch.where(torch.rand(turns) < WARPED_SHARE, 1.0 + WARP * (2.0 * torch.rand(turns) - 1.0), 1.0)
    device = windows.mel.device
    place = (
        at_hertz(bins_hertz()[None] / factor[:, None]).to(device)[windows.turn].clamp(0.0, BINS - 1.0)
    )  # [windows, BINS]
    below = place.floor().clamp(max=BINS - 2.0)

    def bins(index: torch.Tensor) -> torch.Tensor:
        return windows.mel.gather(2, index.long()[:, None].expand_as(windows.mel))

    mel = torch.lerp(bins(below), bins(below + 1.0), (place - below)[:, None])
    return Windows(mel, windows.frames, windows.turn, windows.first)


class Training:
    """The model that learns, its average, and where it is."""

    def __init__(self, work: Path, scale: Scale, warm_start: Path | None, device: torch.device) -> None:
        self.work, self.scale, self.device = work, scale, device
        if warm_start:
            warm_embeddings(work, warm_start)
        words = tokenizer.load(work)
        self.template = Template(words)
        torch.manual_seed(scale.seed)
        self.model = Thinker(words, tokenizer.embeddings(work), "sdpa" if device.type == "cuda" else "eager")
        if warm_start:
            self.model.warm_start(warm_start, words)
        self.model.to(device)
        self.average = copy.deepcopy(self.model).requires_grad_(False)
        self.learning = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.averaged = [
            b for a, b in zip(self.model.parameters(), self.average.parameters(), strict=True) if a.requires_grad
        ]
        matrices, others = [p for p in self.learning if p.ndim > 1], [p for p in self.learning if p.ndim < 2]
        groups = [{"params": matrices, "weight_decay": 0.02}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=scale.thinker_rate, betas=(0.9, 0.98), fused=True)
        self.transcript_first = 0 if warm_start else min(TRANSCRIPT_FIRST, scale.thinker_steps // 4)
        self.head_first = HEAD_FIRST if warm_start else 0
        self.warm = bool(warm_start)
        self.step, self.seconds, self.best = 0, 0.0, -1.0

    @property
    def state_path(self) -> Path:
        return self.work / "thinker_state.pt"

    def resume(self) -> None:
        """Goes on where the saved state is, if there is one."""
        if self.state_path.exists():
            kept = torch.load(self.state_path, map_location=self.device)
            self.model.load_state_dict(kept["model"])
            self.average.load_state_dict(kept["average"])
            self.optimizer.load_state_dict(kept["optimizer"])
            self.step, self.seconds, self.best = kept["step"], kept["seconds"], kept["best"]
            torch.set_rng_state(kept["random"].cpu())
            print(f"thinker: goes on after step {self.step}, best so far {self.best:.3f}", flush=True)

    def save(self) -> None:
        kept = dict(
            model=self.model.state_dict(), average=self.average.state_dict(), optimizer=self.optimizer.state_dict()
        )
        where = dict(step=self.step, seconds=self.seconds, best=self.best, random=torch.get_rng_state())
        _write(kept | where, self.state_path)

    @property
    def progress(self) -> float:
        """0 to 1."""
        return self.step / self.scale.thinker_steps

    @property
    def transcript_weight(self) -> float:
        if not self.warm:
            return TRANSCRIPT_WEIGHT
        risen = min(1.0, self.step / WARM_TRANSCRIPT_UNTIL)
        return WARM_TRANSCRIPT_WEIGHT + risen * (LATER_TRANSCRIPT_WEIGHT - WARM_TRANSCRIPT_WEIGHT)

    def learn(self, batch: Batch) -> dict[str, float]:
        """One step. Returns what to report."""
        batch = batch.to(self.device)
        batch.windows = masked(warped(batch.windows))
        falling = 0.03 + 0.97 * (0.5 + 0.5 * math.cos(math.pi * min(1.0, self.progress)))
        rate = self.scale.thinker_rate * min(1.0, (self.step + 1) / WARM_UP) * falling
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with autocast(self.device):
            answer, transcript, accuracy = self.model.losses(
                batch, answers=self.step >= self.transcript_first, transcript_reaches_tower=self.step >= self.head_first
            )
        loss = answer + self.transcript_weight * transcript
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.learning, 1.0)
        if torch.isfinite(norm):
            self.optimizer.step()
        self.step += 1
        stays = min(AVERAGE, (1 + self.step) / (10 + self.step))
        torch._foreach_lerp_(self.averaged, self.learning, 1.0 - stays)
        return dict(answer=answer.item(), transcript=transcript.item(), token=accuracy.item(), norm=norm.item())

    def judge(self, talks: list[list[questions.Spoken]]) -> None:
        """Asks held-out questions; keeps the average if it never was better."""
        begun = time.monotonic()
        with autocast(self.device):
            judged = thinker_judge.answers(self.average, self.template, talks, self.device)
        right = thinker_judge.share_right(judged)
        taken = time.monotonic() - begun
        print(
            f"thinker: step {self.step}: {right:.3f} of {len(judged)} held-out turns right ({taken:.0f} s)", flush=True
        )
        print("  " + thinker_judge.by(judged, lambda one: one.turn.topic), flush=True)
        print("  " + thinker_judge.by(judged, lambda one: one.voice), flush=True)
        for one in [one for one in judged if not one.right][:6]:
            print(f"  {one.voice}: {one.turn.question} -> {one.answer}", flush=True)
        if right >= self.best:
            self.best = right
            _write(
                dict(model=self.average.reference.state_dict(), right=right, step=self.step), self.work / "thinker.pt"
            )


def _write(content: dict, path: Path) -> None:
    part = path.with_suffix(".part")
    torch.save(content, part)
    part.replace(path)


def judged_talks(work: Path, turns: int) -> list[list[questions.Spoken]]:
    """Held-out conversations of about so many turns in all, the same each time."""
    talks, count = [], 0
    for talk in questions.load(work / "questions" / "held_out"):
        talks.append(talk)
        count += len(talk)
        if count >= turns:
            break
    return talks


def train(work: Path, scale: Scale, warm_start: Path | None, device: torch.device) -> None:
    """Trains to the scale's last step; the same call goes on after a stop. `warm_start` is a checkpoint folder to begin
    from.
    """
    torch.set_num_threads(scale.threads)
    training = Training(work, scale, warm_start, device)
    training.resume()
    talks = judged_talks(work, JUDGED_TURNS)
    workers = scale.processes - 1
    batches = DataLoader(
        Batches(work, scale.thinker_batch, training.step + 1),
        batch_size=None,
        num_workers=workers,
        prefetch_factor=8 if workers else None,
        pin_memory=False,
        worker_init_fn=leave_interrupts_to_parent,
    )
    interrupt = Interrupt()
    begun = last = time.monotonic()
    said = saved = begun
    smooth: dict[str, float] = {}
    first_step = training.step
    for batch in batches:
        if training.progress >= 1.0 or interrupt.wished:
            break
        waited = time.monotonic() - last  # for data
        for name, value in (training.learn(batch) | {"waited": waited}).items():
            smooth[name] = 0.97 * smooth.get(name, value) + 0.03 * value
        now = time.monotonic()
        training.seconds += min(now - last, LONGEST_STEP)
        last = now
        if now - said > SAY_EVERY:
            said = now
            pace = (training.step - first_step) / (now - begun)
            values = ", ".join(f"{name} {value:.3f}" for name, value in smooth.items())
            print(
                f"thinker: step {training.step}, {training.progress:.0%}, {pace:.2f} steps/s, {training.seconds:.0f} "
                f"s so far, {values}",
                flush=True,
            )
        if now - saved > SAVE_EVERY:
            saved = now
            training.save()
        if (
            training.step % max(1, min(JUDGE_EVERY, scale.thinker_steps // 8)) == 0
            and training.step > training.transcript_first
        ):
            training.judge(talks)
    training.save()
    interrupt.obey()
    training.judge(talks)
