"""Makes a turn-detection model: `python -m turns_recipe STEP... --work DIR`. A step goes on where it was stopped."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

STEPS = {
    "prompts": "people's voice prompts, from packages: turns with their pauses",
    "kokoro": "turns spoken by Kokoro, with hesitations, lists, numbers and spelled names",
    "examples": "turns up to a pause or an end, with rooms, noise and lines; features and labels",
    "train": "the network",
    "choose": "prints the silences that end a turn, by speakers that training never hears",
    "export": "the weights",
}


def main() -> None:
    listed = "\n".join(f"  {name:9} {what}" for name, what in STEPS.items())
    parser = argparse.ArgumentParser(
        prog="python -m turns_recipe",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__,
        epilog=f"steps:\n{listed}",
    )
    parser.add_argument("steps", nargs="+", choices=STEPS, metavar="STEP", help="those below, in their order")
    parser.add_argument("--work", type=Path, default=Path("target/turns-recipe"), help="where everything is kept")
    parser.add_argument("--turns", type=int, default=6_000, help="turns of Kokoro")
    parser.add_argument("--examples", type=int, default=40_960, help="examples that training draws from")
    parser.add_argument("--train-steps", type=int, default=6_000, help="steps of training, of 64 examples")
    parser.add_argument("--processes", type=int, default=2, help="processes that speak side by side")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    parser.add_argument("--out", type=Path, help="where export writes (default: WORK/model.safetensors)")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    for name in arguments.steps:
        begun = time.monotonic()
        print(f"== {name}: {STEPS[name]}", flush=True)
        run(name, arguments)
        print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)


def run(name: str, arguments: argparse.Namespace) -> None:
    """Runs a step. What needs other packages is imported by the step that uses it."""
    if name in ("prompts", "kokoro"):
        from . import speak

        if name == "prompts":
            speak.prompts(arguments.work)
        else:
            speak.kokoro(arguments.work, arguments.turns, arguments.processes)
        return
    import torch

    from . import choose, train

    torch.set_num_threads(arguments.threads)
    if name == "examples":
        train.make_examples(arguments.work, arguments.examples)
    elif name == "train":
        train.train(arguments.work, arguments.train_steps)
    elif name == "choose":
        choose.choose(arguments.work)
    else:
        train.export(arguments.work, arguments.out or arguments.work / "model.safetensors")


if __name__ == "__main__":
    main()
