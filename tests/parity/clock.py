"""Times the parts of a reference's `generate`; for its random dimensions, too."""

import json
import statistics
import time
from pathlib import Path

# Fields of config.json that count a stack's layers, and that list some of them: as in
# engine/src/checkpoint/synthetic.rs.
LAYERS = ("num_hidden_layers", "encoder_layers")
LISTS = ("look_ahead_layers", "look_backward_layers")


class Clock:
    """Notes when each forward pass of a sub-model ends, and when the `generate` around them returns. `more` are
    arguments that each `generate` gets.
    """

    def __init__(self, module, **more):
        self.passes: list[float] = []
        self.end = 0.0
        module.register_forward_hook(lambda *_: self.passes.append(time.perf_counter()))
        plain = module.generate

        def generate(*args, **kwargs):
            self.passes.clear()
            result = plain(*args, **(kwargs | more))
            self.end = time.perf_counter()
            return result

        module.generate = generate

    def steps(self) -> int:
        """Steps after the prefill."""
        return len(self.passes) - 1

    def per_step_ms(self) -> float:
        """Mean time of a step after the prefill, with all that `generate` does around its forward pass: for the
        talker, the code predictor of a frame and then the pass that chooses the next."""
        assert self.steps() > 0, "the answer is too short to time"
        return 1e3 * (self.end - self.passes[0]) / self.steps()


def timed(run):
    """Seconds of a call, and its result."""
    begin = time.perf_counter()
    result = run()
    return time.perf_counter() - begin, result


def medians(repeats: int, run) -> dict[str, float]:
    """Medians of the figures of `run`, after one that is not counted."""
    run()
    figures = [run() for _ in range(repeats)]
    return {name: statistics.median(one[name] for one in figures) for name in figures[0]}


def limited(config, most: int | None):
    """A configuration with at most so many layers in each stack."""
    if most is None or not isinstance(config, dict):
        return config

    def field(name, value):
        if name in LAYERS:
            return min(value, most)
        if name in LISTS:
            return sorted({min(number, most - 1) for number in value})
        return limited(value, most)

    return {name: field(name, value) for name, value in config.items()}


def read_config(folder: Path, most: int | None) -> dict:
    return limited(json.loads((folder / "config.json").read_text()), most)
