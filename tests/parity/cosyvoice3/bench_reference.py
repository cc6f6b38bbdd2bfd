"""Times the flow of CosyVoice3's derivation in published dimensions: `python bench_reference.py FOLDER`.

Prints one line of JSON. All chunks of a response without a recording are solved at once, in ten steps of two rows, with
the mask over chunks that the engine has; after one solve that is not counted. Weights are random.
"""

import argparse
import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import models

from clock import timed

CODES_PER_SECOND = 25
LEFT_CHUNKS = 4
# As in examples/libritts/cosyvoice3/conf/cosyvoice3.yaml of the reference.
PUBLISHED = {"CODES": 6561, "MEL": 80, "SPEAKER": 192, "CHANNELS": 1024}
DIT = {"dim": 1024, "depth": 22, "heads": 16, "dim_head": 64, "ff_mult": 2}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="not read: the dimensions are below")
    parser.add_argument("--threads", type=int, default=2, help="torch threads (default: 2)")
    parser.add_argument("--dtype", default="float32", help="of products (default: float32)")
    parser.add_argument("--seconds", type=int, default=5, help="of sound (default: 5)")
    parser.add_argument("--repeats", type=int, default=1, help="timed solves, after one untimed (default: 1)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.set_grad_enabled(False)
    torch.manual_seed(1)
    for name, value in PUBLISHED.items():
        setattr(models, name, value)
    models.DIT.update(DIT)
    flow = models.Flow().eval()
    codes = torch.randint(models.CODES, [CODES_PER_SECOND * arguments.seconds]).tolist()
    dtype = getattr(torch, arguments.dtype)

    def solve():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype is torch.bfloat16):
            return flow(codes, torch.zeros(0, models.MEL), torch.randn(models.SPEAKER), LEFT_CHUNKS)

    flow(codes[:CODES_PER_SECOND], torch.zeros(0, models.MEL), torch.randn(models.SPEAKER), LEFT_CHUNKS)
    times = sorted(timed(solve)[0] for _ in range(arguments.repeats))
    found = 1e3 * times[len(times) // 2] / arguments.seconds
    print(json.dumps({"threads": arguments.threads, "dtype": arguments.dtype, "sound_ms_per_second": found}))


if __name__ == "__main__":
    main()
