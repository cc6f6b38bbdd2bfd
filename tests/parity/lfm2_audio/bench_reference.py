"""Times a position of LFM2.5-Audio's language model in published dimensions: `python bench_reference.py FOLDER`.

Prints one line of JSON. The layers and the head are transformers' `Lfm2ForCausalLM` with its cache; the codes of a
frame are not part of it. Weights are random.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

import torch
from transformers import Lfm2Config, Lfm2ForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from clock import read_config, timed

PROMPT = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=2, help="torch threads (default: 2)")
    parser.add_argument("--dtype", default="bfloat16", help="of the weights (default: bfloat16)")
    parser.add_argument("--repeats", type=int, default=8, help="timed positions, after two untimed (default: 8)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.set_grad_enabled(False)
    torch.manual_seed(1)
    config = Lfm2Config(**read_config(arguments.folder, None)["lfm"])
    torch.set_default_dtype(getattr(torch, arguments.dtype))
    model = Lfm2ForCausalLM(config).eval()
    cache = model(torch.ones(1, PROMPT, dtype=torch.long), use_cache=True).past_key_values
    one = torch.ones(1, 1, dtype=torch.long)

    def step():
        return model(one, past_key_values=cache, use_cache=True).logits

    step(), step()
    found = 1e3 * statistics.median(timed(step)[0] for _ in range(arguments.repeats))
    print(json.dumps({"threads": arguments.threads, "dtype": arguments.dtype, "step_ms": found}))


if __name__ == "__main__":
    main()
