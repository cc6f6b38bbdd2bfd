"""Makes an interruption model: `python -m interruptions_recipe STEP... --work DIR`. A step goes on where it stopped."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

STEPS = {
    "people": "people's laughs, coughs, groans and shouts, from a package",
    "synthesised": "backchannels and commands of formant synthesisers in many languages",
    "kokoro": "backchannels, commands and begins of sentences, spoken by Kokoro",
    "examples": "voices behind a little silence, with rooms, noise and lines; levels and labels",
    "train": "the network",
    "choose": "prints what thresholds make of the choosing speakers",
    "export": "the weights",
}


def main() -> None:
    listed = "\n".join(f"  {name:9} {what}" for name, what in STEPS.items())
    parser = argparse.ArgumentParser(
        prog="python -m interruptions_recipe",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__,
        epilog=f"steps:\n{listed}",
    )
    parser.add_argument("steps", nargs="+", choices=STEPS, metavar="STEP", help="those below, in their order")
    parser.add_argument(
        "--work", type=Path, default=Path("target/interruptions-recipe"), help="where everything is kept"
    )
    parser.add_argument("--turns", type=Path, default=Path("target/turns-recipe"), help="work folder of turns_recipe")
    parser.add_argument("--starts", type=int, default=560, help="starts of Kokoro that train; a fifth of it choose")
    parser.add_argument("--synthesised", type=int, default=2_000, help="words of formant synthesisers")
    parser.add_argument("--examples", type=int, default=24_576, help="examples that training draws from")
    parser.add_argument("--train-steps", type=int, default=4_000, help="steps of training, of 64 examples")
    parser.add_argument("--processes", type=int, default=2, help="processes that speak side by side")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    parser.add_argument("--out", type=Path, help="where export writes (default: WORK/weights.f16)")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    for name in arguments.steps:
        begun = time.monotonic()
        print(f"== {name}: {STEPS[name]}", flush=True)
        run(name, arguments)
        print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)


def run(name: str, arguments: argparse.Namespace) -> None:
    """Runs a step. What needs torch is imported by the step that uses it."""
    work = arguments.work
    if name == "synthesised":
        from . import synthesised

        synthesised.speak(work, arguments.synthesised)
        return
    if name in ("people", "kokoro"):
        from . import spoken, words

        if name == "people":
            spoken.human(work)
            return
        spoken.kokoro(work, "train", spoken.training_voices(), arguments.starts, arguments.processes)
        spoken.kokoro(work, "choosing", list(words.CHOOSING), arguments.starts // 5, arguments.processes)
        return
    import torch

    from . import choose, train

    torch.set_num_threads(arguments.threads)
    if name == "examples":
        train.make_examples(work, "train", arguments.examples, arguments.turns)
        train.make_examples(work, "choosing", arguments.examples // 8, arguments.turns)
    elif name == "train":
        train.train(work, arguments.train_steps)
    elif name == "choose":
        choose.choose(work)
    else:
        train.export(work, arguments.out or work / "weights.f16")


if __name__ == "__main__":
    main()
