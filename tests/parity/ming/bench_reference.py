"""Times a step of Ming's derivation in published dimensions: `python bench_reference.py FOLDER`.

Prints one line of JSON. A step is one of transformers' Qwen2 with its cache, the solve of a patch in ten evaluations of
two rows, one after the other as in the derivation, and the aggregator. Weights are random.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

import torch
from transformers import DynamicCache

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import models

from clock import read_config, timed

PROMPT = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=2, help="torch threads (default: 2)")
    parser.add_argument("--dtype", default="float32", help="of products (default: float32)")
    parser.add_argument("--repeats", type=int, default=4, help="timed steps, after one untimed (default: 4)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.set_grad_enabled(False)
    torch.manual_seed(1)
    config = read_config(arguments.folder, None)
    text, flow = config["llm_config"], config["ditar_config"]
    models.HIDDEN, models.LATENT = text["hidden_size"], 64
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    layers = models.stack({name: text[name] for name in (*names, "rms_norm_eps", "rope_theta")}).eval()
    solver, aggregator = models.Flow(flow).eval(), models.Aggregator(config["aggregator_config"]).eval()
    cache = DynamicCache()
    layers(inputs_embeds=torch.randn(1, PROMPT, models.HIDDEN), past_key_values=cache)
    row = torch.randn(models.HIDDEN)

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=arguments.dtype == "bfloat16"):
            hidden = layers(inputs_embeds=row[None, None], past_key_values=cache).last_hidden_state[0, -1]
            history, noise = (torch.randn(rows, models.LATENT) for rows in (models.HISTORY, models.PATCH))
            return aggregator(solver.solve(hidden, history, noise))

    step()
    found = 1e3 * statistics.median(timed(step)[0] for _ in range(arguments.repeats))
    print(json.dumps({"threads": arguments.threads, "dtype": arguments.dtype, "step_ms": found}))


if __name__ == "__main__":
    main()
