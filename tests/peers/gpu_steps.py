"""Times decode steps of the reference implementation on a CUDA device, with random weights of a published size.

`python gpu_steps.py FOLDER REPORT [--sessions 1,8,64]` builds the language models of Qwen3-Omni (transformers) in bf16
on the device, layer by layer as `FOLDER/config.json` says, and writes the milliseconds of one step for each number of
sessions: a thinker token, a talker token, the other codes of a frame, and the samples of 25 frames behind 25 others.
Steps run as the reference runs them, operation by operation, and the first two again as a captured graph over a static
cache.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import transformers
from transformers import Cache, DynamicCache, PretrainedConfig, StaticCache
from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as reference
from transformers.models.qwen3_omni_moe.configuration_qwen3_omni_moe import Qwen3OmniMoeConfig

CACHED = 128  # positions before the measured steps
REPEATS = 12
FRAMES = 50  # of a chunk of samples, its left context included


class Device:
    """A device, and what is drawn and timed on it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_cuda = name.startswith("cuda")

    def built(self, make: Callable) -> torch.nn.Module:
        """Model with random weights in bf16."""
        torch.set_default_dtype(torch.bfloat16)
        with torch.device(self.name):
            model = make().eval()
        torch.set_default_dtype(torch.float32)
        return model

    def random(self, *shape: int) -> torch.Tensor:
        """Random rows."""
        return torch.randn(*shape, device=self.name, dtype=torch.bfloat16) * 0.1

    def wait(self) -> None:
        """Waits for everything that was launched."""
        if self.is_cuda:
            torch.cuda.synchronize()

    def milliseconds(self, step: Callable) -> float:
        """Median time of a step, after two that are not counted."""
        times = []
        for at in range(REPEATS + 2):
            self.wait()
            began = time.perf_counter()
            step()
            self.wait()
            if at >= 2:
                times.append(1e3 * (time.perf_counter() - began))
        return statistics.median(times)


class Token:
    """One token of every session: a stack of layers and its head."""

    def __init__(self, device: Device, kind: type, config: PretrainedConfig) -> None:
        self.device, self.config = device, config
        self.model = device.built(partial(kind, config))
        head = partial(torch.nn.Linear, config.hidden_size, config.vocab_size, bias=False)
        self.head = device.built(head)

    def eager(self, sessions: int) -> float:
        """Milliseconds over a growing cache, operation by operation."""
        cache = DynamicCache(config=self.config)
        self._prefill(cache, sessions)

        def step() -> None:
            row = self.device.random(sessions, 1, self.config.hidden_size)
            found = self.model(inputs_embeds=row, past_key_values=cache, use_cache=True)
            self.head(found.last_hidden_state).argmax(-1)

        return self.device.milliseconds(step)

    def graph(self, sessions: int) -> float:
        """Milliseconds as a captured graph: one call of the driver."""
        cache = StaticCache(config=self.config, max_cache_len=2 * CACHED)
        self._prefill(cache, sessions)
        row = self.device.random(sessions, 1, self.config.hidden_size)
        position = torch.full((3, sessions, 1), CACHED, device=self.device.name)
        mask = torch.zeros(sessions, 1, 1, 2 * CACHED, device=self.device.name, dtype=torch.bfloat16)

        def step() -> None:
            found = self.model(
                inputs_embeds=row, attention_mask=mask, position_ids=position, past_key_values=cache, use_cache=True
            )
            self.head(found.last_hidden_state).argmax(-1)

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return self.device.milliseconds(graph.replay)

    def _prefill(self, cache: Cache, sessions: int) -> None:
        rows = self.device.random(sessions, CACHED, self.config.hidden_size)
        self.model(inputs_embeds=rows, past_key_values=cache, use_cache=True)


def sound(device: Device, config: PretrainedConfig, sessions: int) -> dict[str, float]:
    """Milliseconds of a frame's other codes, and of a chunk of samples."""
    talker = config.talker_config
    kind = reference.Qwen3OmniMoeTalkerCodePredictorModelForConditionalGeneration
    predictor = device.built(partial(kind, talker.code_predictor_config))
    code2wav = device.built(partial(reference.Qwen3OmniMoeCode2Wav, config.code2wav_config))
    shape = (sessions, talker.num_code_groups, FRAMES)
    chunk = torch.randint(0, config.code2wav_config.codebook_size, shape, device=device.name)

    def codes() -> None:
        rows = device.random(sessions, 2, talker.text_config.hidden_size)
        predictor.generate(inputs_embeds=rows, max_new_tokens=talker.num_code_groups - 1, do_sample=False)

    return {
        f"codes_eager_{sessions}": device.milliseconds(codes),
        f"samples_of_{FRAMES // 2}_frames_{sessions}": device.milliseconds(partial(code2wav, chunk)),
    }


def limit(fields: dict, most: int) -> None:
    """Limits the layers of every stack."""
    for name, value in fields.items():
        if isinstance(value, dict):
            limit(value, most)
        elif name in ("num_hidden_layers", "encoder_layers", "accept_hidden_layer"):
            fields[name] = min(value, most)


def main() -> None:
    """Runs all steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("report", type=Path)
    parser.add_argument("--sessions", default="1,8,64")
    parser.add_argument("--layers", type=int, help="at most that many layers of each stack, to try the script")
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    torch.set_grad_enabled(False)
    fields = json.loads((arguments.folder / "config.json").read_text())
    if arguments.layers:
        limit(fields, arguments.layers)
    config = Qwen3OmniMoeConfig(**fields)
    counts = [int(count) for count in arguments.sessions.split(",")]
    device = Device(arguments.device)
    found: dict[str, float] = {}
    stacks = {
        "thinker": (reference.Qwen3OmniMoeThinkerTextModel, config.thinker_config.text_config),
        "talker": (reference.Qwen3OmniMoeTalkerModel, config.talker_config.text_config),
    }
    for name, (kind, text) in stacks.items():
        token = Token(device, kind, text)
        for count in counts:
            found[f"{name}_eager_{count}"] = token.eager(count)
            if device.is_cuda:
                found[f"{name}_graph_{count}"] = token.graph(count)
        del token
    for count in counts:
        found |= sound(device, config, count)
    for name, took in found.items():
        print(f"{name:<28}{took:>10.3f} ms")
    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    arguments.report.write_text(json.dumps(versions | found, indent=1) + "\n")


if __name__ == "__main__":
    main()
