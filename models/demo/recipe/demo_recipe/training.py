"""The training loop of every step: last step, learning rate, averaged weights, progress, and going on after a stop."""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

CLIP = 1.0  # of the gradient's norm
WARM_UP = 200  # steps
SAVE_EVERY = 120.0  # seconds
REPORT_EVERY = 10.0  # seconds


def autocast(device: torch.device) -> contextlib.AbstractContextManager:
    """bf16 where the device multiplies it faster: on GPUs and on processors with AVX-512 BF16 or AMX."""
    return torch.autocast(device.type, torch.bfloat16)


class Interrupt:
    """Turns the first interrupt into a wish, so that a step of training ends whole and is saved. A second one is an
    interrupt again.
    """

    STATUS = 124  # of a process that was stopped before its time, as `timeout` has it

    def __init__(self) -> None:
        self.wished = False
        self._handle(self._wish)

    @staticmethod
    def _handle(how: Callable) -> None:
        with contextlib.suppress(ValueError):  # not the main thread: somebody else's business
            signal.signal(signal.SIGINT, how)

    def _wish(self, *_: object) -> None:
        self.wished = True
        self._handle(signal.default_int_handler)

    def obey(self) -> None:
        """Ends the process if that was wished, once all is saved. From here on an interrupt is one again."""
        if self.wished:
            raise SystemExit(self.STATUS)
        self._handle(signal.default_int_handler)


def leave_interrupts_to_parent(_: int) -> None:
    """For processes that only make data: they end with the one that trains."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Run:
    """Iterates over steps. `update` takes a loss and moves the weights; the file holds all that is needed to go on."""

    def __init__(self, name: str, path: Path, model: nn.Module, rate: float, steps: int, threads: int) -> None:
        torch.set_num_threads(threads)
        self.name, self.path, self.model, self.steps = name, path, model, steps
        self.step = 0
        self._before = 0.0  # seconds that earlier calls took
        self.ema = {key: value.detach().clone() for key, value in model.state_dict().items()}
        self._parts: dict[str, tuple[nn.Module, torch.optim.Optimizer, float]] = {}
        self._seen: dict[str, float] = {}
        self._kept = (
            torch.load(path, map_location=next(model.parameters()).device, weights_only=True) if path.exists() else None
        )
        self.add("main", model, rate)
        if self._kept:
            self.step, self.ema, self._before = self._kept["step"], self._kept["ema"], self._kept["seconds"]
            # What is random goes on where it was, so that a stop changes nothing.
            torch.set_rng_state(self._kept["random"].cpu())
            print(f"{name}: goes on at step {self.step}", flush=True)

    def add(self, part: str, model: nn.Module, rate: float) -> None:
        """Another model that this run trains, with its own optimiser."""
        wanted = [p for p in model.parameters() if p.requires_grad]
        optimiser = torch.optim.AdamW(wanted, lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
        if self._kept and part in self._kept["parts"]:
            weights, state = self._kept["parts"][part]
            model.load_state_dict(weights)
            optimiser.load_state_dict(state)
        self._parts[part] = (model, optimiser, rate)

    def __iter__(self) -> Iterator[int]:
        self._start = self._saved = self._said = time.monotonic()
        first = self.step
        interrupt = Interrupt()
        while self.done() < 1 and not interrupt.wished:
            yield self.step
            self.step += 1
            self._average()
            now = time.monotonic()
            if now - self._said > REPORT_EVERY:
                pace = (now - self._start) / (self.step - first)
                left = pace * (self.steps - self.step)
                values = ", ".join(f"{key} {value:.3f}" for key, value in self._seen.items())
                print(
                    f"{self.name}: step {self.step}, {pace:.2f} s each, {self.taken():.0f} s so far, {left:.0f} s "
                    f"left; {values}",
                    flush=True,
                )
                self._said = now
            if now - self._saved > SAVE_EVERY:
                self.save()
                self._saved = now
        self.save()
        interrupt.obey()

    def taken(self) -> float:
        """Seconds of training so far, earlier calls counted: what is logged, not a limit."""
        return self._before + time.monotonic() - self._start

    def done(self) -> float:
        """Progress of the run, 0 to 1."""
        return min(1.0, self.step / self.steps)

    def update(self, part: str, loss: Tensor) -> None:
        """One step of a part's optimiser, along a warm-up and half a cosine."""
        model, optimiser, rate = self._parts[part]
        for group in optimiser.param_groups:
            group["lr"] = (
                rate * min(1, (self.step + 1) / WARM_UP) * (0.02 + 0.98 * (1 + math.cos(math.pi * self.done())) / 2)
            )
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimiser.step()

    def report(self, values: dict[str, Tensor | float]) -> None:
        """Values for the progress line, averaged over about 50 steps."""
        for key, value in values.items():
            now = float(value.detach()) if isinstance(value, Tensor) else value
            self._seen[key] = now if key not in self._seen else 0.98 * self._seen[key] + 0.02 * now

    @torch.no_grad()
    def _average(self) -> None:
        share = 1 - min(0.999, (self.step + 1) / (self.step + 20))
        for key, value in self.model.state_dict().items():
            if value.dtype.is_floating_point:
                self.ema[key].lerp_(value, share)
            else:
                self.ema[key].copy_(value)

    def save(self) -> None:
        """Writes the file whole or not at all."""
        parts = {
            part: (model.state_dict(), optimiser.state_dict()) for part, (model, optimiser, _) in self._parts.items()
        }
        part_path = self.path.with_suffix(".part")
        kept = {
            "step": self.step,
            "seconds": self.taken(),
            "ema": self.ema,
            "parts": parts,
            "random": torch.get_rng_state(),
        }
        torch.save(kept, part_path)
        part_path.rename(self.path)


def read(work: Path, file: str, step: str) -> dict:
    """Reads the state that a step has saved."""
    path = work / file
    if not path.exists():
        raise SystemExit(f"there is no {path}: run the step `{step}` first")
    return torch.load(path, map_location="cpu", weights_only=True)
