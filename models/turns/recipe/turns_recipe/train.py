"""Training, on shards of examples."""

from __future__ import annotations

import math
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

from .data import LABELS, Examples, sources
from .features import CHANNELS, FRAMES, features
from .net import TurnNet

BATCH = 64
SHARD = 256  # examples of a file
SAVE_EVERY_S = 60.0


def make_examples(work: Path, count: int) -> None:
    """Writes shards of features, f16, with their labels; a shard that exists is kept."""
    folder = work / "examples"
    folder.mkdir(exist_ok=True)
    wanted = [number for number in range(count // SHARD) if not (folder / f"{number:04}.npz").exists()]
    if not wanted:
        return
    examples = Examples(sources(work, choosing=False))
    for number in wanted:
        examples.seed(number)
        drawn = [examples.next() for _ in range(SHARD)]
        x = torch.cat([features([sound for sound, _, _ in drawn[at : at + 32]]) for at in range(0, SHARD, 32)])
        part = folder / f"{number:04}.part.npz"
        kinds = np.array([list(LABELS).index(kind) for _, _, kind in drawn], np.int64)
        np.savez(part, x=x.half().numpy(), y=np.array([label for _, label, _ in drawn], np.float32), kind=kinds)
        part.rename(folder / f"{number:04}.npz")
        print(f"{folder.name}: {number + 1} of {count // SHARD} shards", flush=True)


def read(folder: Path) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """All shards: features, labels, kinds."""
    files = [np.load(path) for path in sorted(folder.glob("[0-9][0-9][0-9][0-9].npz"))]
    x, y, kind = (np.concatenate([file[name] for file in files]) for name in ("x", "y", "kind"))
    return torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(kind)


def masked(x: torch.Tensor, random: np.random.Generator) -> torch.Tensor:
    """Features with a band of mel bins, or a stretch of early frames, replaced by their mean."""
    x = x.clone()
    for one in x:
        if random.random() < 0.3:
            at = int(random.integers(0, 32))
            one[:, at : at + int(random.integers(2, 8))] = one[:, :40].mean()
        if random.random() < 0.3:
            one[: int(random.integers(1, FRAMES // 2)), :] = 0.0
    return x


def train(work: Path, steps: int) -> None:
    """Trains to the last step; goes on where it was stopped."""
    x, y, _ = read(work / "examples")
    print(f"{len(x)} examples, {CHANNELS} channels", flush=True)
    torch.manual_seed(1)
    net = TurnNet()
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.02)
    state, at, spent = work / "state.pt", 0, 0.0
    if state.exists():
        kept = torch.load(state, weights_only=False)
        net.load_state_dict(kept["net"])
        optimiser.load_state_dict(kept["optimiser"])
        at, spent = kept["step"], kept["seconds"]
    random = np.random.default_rng([2, at])
    begun = saved = time.monotonic()
    mean = None
    net.train()
    while at < steps:
        for group in optimiser.param_groups:
            group["lr"] = 1e-3 * min(1.0, (at + 1) / 50) * 0.5 * (1 + math.cos(math.pi * at / steps))
        rows = random.integers(0, len(x), BATCH)
        logits = net(masked(x[rows].float(), random))
        loss = F.binary_cross_entropy_with_logits(logits, y[rows] * 0.96 + 0.02)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        at += 1
        last = float(loss.detach())
        mean = last if mean is None else mean + (last - mean) * 0.02
        now = time.monotonic()
        if now - saved > SAVE_EVERY_S or at == steps:
            kept = {"net": net.state_dict(), "optimiser": optimiser.state_dict(), "step": at}
            torch.save(kept | {"seconds": spent + now - begun}, state)
            saved = now
            print(f"step {at} of {steps}: loss {mean:.3f}, {spent + now - begun:.0f} s", flush=True)


def load(work: Path) -> TurnNet:
    net = TurnNet()
    net.load_state_dict(torch.load(work / "state.pt", weights_only=False)["net"])
    return net.eval()


def export(work: Path, out: Path) -> None:
    """Writes the weights, in half precision."""
    tensors = {name: tensor.half().contiguous() for name, tensor in load(work).state_dict().items()}
    save_file(tensors, out)
    print(f"{out}: {out.stat().st_size} bytes")
