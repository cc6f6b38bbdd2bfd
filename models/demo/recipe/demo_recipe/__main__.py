"""`python -m demo_recipe STEP... --scale SCALE --work DIR`: the recipe's steps, in order, each of which goes on where
it stopped.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from .scale import SCALES, Scale

if TYPE_CHECKING:
    import torch


def device() -> torch.device:
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


# A step imports what it needs itself: speech is made without torch, training without the synthesisers.


def answers(work: Path, scale: Scale, arguments: argparse.Namespace) -> None:
    from . import answers

    answers.make(work, scale)


def targets(work: Path, scale: Scale, arguments: argparse.Namespace) -> None:
    from . import teacher

    teacher.make(work, scale)


def align(work: Path, scale: Scale, arguments: argparse.Namespace) -> None:
    from . import align

    align.make(work, scale, device())


def tune(work: Path, scale: Scale, arguments: argparse.Namespace) -> None:
    from . import codec_train

    codec_train.tune(work, scale, device(), arguments.warm_start)


def questions(work: Path, scale: Scale, arguments: argparse.Namespace) -> None:
    from . import questions

    questions.make(work, scale)


def codec(work: Path, scale: Scale, arguments: argparse.Namespace) -> None:
    from . import codec_train

    codec_train.train(work, scale, device(), arguments.warm_start)


def codes(work: Path, scale: Scale, arguments: argparse.Namespace) -> None:
    from . import answers

    answers.plan(work, scale)


def talker(work: Path, scale: Scale, arguments: argparse.Namespace) -> None:
    from . import talker

    talker.train(work, scale, device(), arguments.warm_start)


def thinker(work: Path, scale: Scale, arguments: argparse.Namespace) -> None:
    from . import thinker

    thinker.train(work, scale, arguments.warm_start, device())


def export(work: Path, scale: Scale, arguments: argparse.Namespace) -> None:
    from . import export

    export.make(work, arguments.out or work / "checkpoint", arguments.warm_start)


def keep(work: Path, scale: Scale, arguments: argparse.Namespace) -> None:
    from . import keep

    keep.make(work, arguments.warm_start or Path(__file__).parents[2])


def judge(work: Path, scale: Scale, arguments: argparse.Namespace) -> None:
    from . import thinker_frozen

    thinker_frozen.judge(work, arguments.warm_start, device(), scale.threads)


def listen(work: Path, scale: Scale, arguments: argparse.Namespace) -> None:
    from . import listen

    listen.make(work, device())


def pack(work: Path, scale: Scale, arguments: argparse.Namespace) -> None:
    from . import pack

    pack.make(work, arguments.part_mib)


def held_out(work: Path, scale: Scale, arguments: argparse.Namespace) -> None:
    from . import held_out

    held_out.make(arguments.out or Path(__file__).parents[2] / "held-out", work)


STEPS: dict[str, tuple[Callable[[Path, Scale, argparse.Namespace], None], str]] = {
    "answers": (answers, "the domain's answers in the teacher's voice"),
    "targets": (targets, "what the codec reproduces"),
    "codec": (codec, "code2wav, from the codes"),
    "codes": (codes, "many more answers, as codes alone"),
    "talker": (talker, "talker and code predictor"),
    "align": (align, "the answers' codes with the talker's loudness"),
    "tune": (tune, "code2wav again, from these codes"),
    "questions": (questions, "the domain's questions in many synthetic voices"),
    "thinker": (thinker, "audio tower and language model"),
    "export": (export, "the checkpoint folder"),
}
# Not a part of `all`.
OTHERS = {
    "keep": (keep, "the thinker of a finished checkpoint, so that the voice alone is trained"),
    "listen": (listen, "answers that were not trained, as teacher, codec and talker say them, to be judged"),
    "judge": (
        judge,
        "the thinker by the frozen lists, without a gateway: of the work folder, or of --warm-start where it has none",
    ),
    "pack": (pack, "what a GPU machine without network needs, in parts; see on-gpu.sh"),
    "held-out": (held_out, "the lists of questions that a finished model is judged by; they are committed"),
}


def main() -> None:
    listed = "\n".join(f"  {name:10} {what}" for name, (_, what) in (STEPS | OTHERS).items())
    parser = argparse.ArgumentParser(
        prog="python -m demo_recipe",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__,
        epilog=f"steps:\n{listed}",
    )
    parser.add_argument(
        "steps", nargs="+", choices=[*STEPS, *OTHERS, "all"], metavar="STEP", help="one of those below, or all"
    )
    parser.add_argument("--scale", choices=SCALES, default="cpu", help="how much of everything (default: cpu)")
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("target/demo-recipe"),
        help="where everything is kept (default: target/demo-recipe)",
    )
    parser.add_argument("--processes", type=int, help="how many make speech side by side (default: the scale's)")
    parser.add_argument("--threads", type=int, help="of the numeric libraries, on a processor (default: the scale's)")
    parser.add_argument(
        "--out", type=Path, help="where export or held-out write (default: WORK/checkpoint, models/demo/held-out)"
    )
    parser.add_argument("--part-mib", type=int, default=12, help="size of pack's parts (default: 12)")
    parser.add_argument(
        "--steps", type=int, dest="last_step", help="of the training that is named (default: the scale's)"
    )
    parser.add_argument(
        "--warm-start",
        type=Path,
        help="a checkpoint folder that training begins from, keep takes (default there: models/demo), and that export "
        "and judge take what "
        "the work folder lacks from",
    )
    arguments = parser.parse_args()
    chosen = list(STEPS) if "all" in arguments.steps else arguments.steps
    scale = SCALES[arguments.scale]
    if arguments.processes:
        scale = replace(scale, processes=arguments.processes)
    if arguments.threads:
        scale = replace(scale, threads=arguments.threads)
    if arguments.last_step:
        steps = ("codec_steps", "tune_steps", "talker_steps", "thinker_steps")
        scale = replace(scale, **dict.fromkeys(steps, arguments.last_step))
    report = []
    for name in chosen:
        start = time.monotonic()
        run, what = (STEPS | OTHERS)[name]
        print(f"== {name}: {what}", flush=True)
        run(arguments.work, scale, arguments)
        report.append((name, time.monotonic() - start))
    print("\n".join(f"{name:10} {seconds:8.0f} s" for name, seconds in report), flush=True)


if __name__ == "__main__":
    main()
