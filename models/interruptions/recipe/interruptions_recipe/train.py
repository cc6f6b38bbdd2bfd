"""Training, on shards of examples."""

from __future__ import annotations

import math
import time
import wave
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from .data import SHARES, WORDS, Examples, Start, read, turns
from .features import BANDS, HOP, levels, relative
from .net import InterruptionNet, likelihoods

ROOT = Path(__file__).parents[4]
BATCH = 64
SHARD = 512  # examples of a file
SEEDS = {"train": 0, "choosing": 500_000}  # of synthesised sounds
RATE = 2e-3
MASKED = 5  # most bands of an example that are not heard
WORD_SHARE = 0.3  # of the loss


def starts(work: Path, which: str, turns_folder: Path) -> list[Start]:
    """The starts that train, or those on which thresholds are chosen."""
    found = [read(path) for path in sorted((work / which).glob("*.npz")) if ".part" not in path.name]
    return [*found, *turns(turns_folder)] if which == "train" else found


def make_examples(work: Path, which: str, count: int, turns_folder: Path) -> None:
    """Writes shards of levels, f16, with their labels; a shard that exists is kept."""
    folder = work / f"{which}-examples"
    folder.mkdir(exist_ok=True)
    wanted = [number for number in range(count // SHARD) if not (folder / f"{number:04}.npz").exists()]
    if not wanted:
        return
    found = starts(work, which, turns_folder)
    counted = {kind: sum(start.kind == kind for start in found) for kind in SHARES}
    print(f"{which}: {counted}", flush=True)
    examples = Examples(found, SEEDS[which])
    for number in wanted:
        examples.seed(number + SEEDS[which])
        drawn = [examples.next() for _ in range(SHARD)]
        x = levels(torch.from_numpy(np.stack([sound for sound, *_ in drawn])))
        part = folder / f"{number:04}.part.npz"
        np.savez(part, x=x.half().numpy(), y=np.array([rest for _, *rest in drawn], np.int64))
        part.rename(folder / f"{number:04}.npz")
        if number % 10 == 9:
            print(f"{folder.name}: {number + 1} of {count // SHARD} shards", flush=True)


def shards(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """All shards: levels, and (kind, first frame, last frame, word) of each example."""
    files = [np.load(path) for path in sorted(folder.glob("[0-9][0-9][0-9][0-9].npz"))]
    x, y = (torch.from_numpy(np.concatenate([file[name] for file in files])) for name in ("x", "y"))
    return x, y


def train(work: Path, steps: int) -> None:
    """Trains to the last step."""
    x, y = shards(work / "train-examples")
    print(f"{len(x)} examples", flush=True)
    torch.manual_seed(1)
    net = InterruptionNet(len(WORDS))
    optimiser = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=0.02)
    random = np.random.default_rng(2)
    at = torch.arange(x.shape[1])
    begun, mean = time.monotonic(), None
    net.train()
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / 100) * 0.5 * (1 + math.cos(math.pi * step / steps))
        rows = random.integers(0, len(x), BATCH)
        batch = relative(x[rows].float())
        # Another microphone: some bands louder or softer.
        tilt = torch.from_numpy(random.normal(0.0, 0.08, (BATCH, 1, batch.shape[2])).astype(np.float32))
        batch = (batch + tilt).clamp(-1.0, 1.2)
        # Some bands are not heard.
        low = torch.from_numpy(random.integers(0, BANDS, BATCH))[:, None]
        width = torch.from_numpy(random.integers(0, MASKED + 1, BATCH))[:, None]
        band = torch.arange(BANDS)
        batch = batch.masked_fill(((band >= low) & (band < low + width))[:, None, :], -1.0)
        states = net.states(batch)
        logits = net.out(states)
        label, first, last, word = y[rows].T
        labels = label[:, None].expand(-1, len(at))
        loss = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none", label_smoothing=0.02)
        mask = (at >= first[:, None]) & (at < last[:, None])
        loss = (loss * mask).sum() / mask.sum()
        # The word at its end: a task that shows what tells one from another.
        has_word = word >= 0
        if has_word.any() and net.words is not None:
            ends = states[has_word, (last[has_word] - 1).clamp(max=len(at) - 1)]
            loss = loss + WORD_SHARE * F.cross_entropy(net.words(ends), word[has_word], label_smoothing=0.02)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        value = float(loss.detach())
        mean = value if mean is None else mean + (value - mean) * 0.01
        if step % 250 == 249:
            print(f"step {step + 1} of {steps}: loss {mean:.3f}, {time.monotonic() - begun:.0f} s", flush=True)
    kept = {name: value for name, value in net.state_dict().items() if not name.startswith("words.")}
    torch.save(kept, work / "state.pt")


def load(work: Path) -> InterruptionNet:
    net = InterruptionNet()
    net.load_state_dict(torch.load(work / "state.pt", weights_only=True))
    return net.eval()


def export(work: Path, out: Path) -> None:
    """Writes the weights one behind the other, in half precision, little-endian."""
    numbers = np.concatenate([tensor.detach().reshape(-1).numpy() for tensor in load(work).weights()])
    out.write_bytes(numbers.astype("<f2").tobytes())
    print(f"{out}: {out.stat().st_size} bytes")
    for name in ("yeah-adam", "caller-wait"):
        print(f"{name}: {expected(load(work), ROOT / 'tests/interruptions' / f'{name}.wav')}")


def expected(net: InterruptionNet, path: Path) -> list[int]:
    """Probabilities of an interruption in thousandths after each frame of a recording, by the exported weights."""
    with wave.open(str(path)) as file:
        sound = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768.0
    for tensor in net.weights():
        tensor.data = tensor.data.half().float()
    sound = sound[: len(sound) // HOP * HOP][: 40 * HOP]
    found = likelihoods(net, relative(levels(torch.from_numpy(sound)[None])))
    return [round(1_000 * float(at)) for at in found[0, :, 0]]
