"""Times decode steps of the reference implementation on a CUDA device, with random weights of a published configuration.

`python gpu_steps.py FOLDER REPORT [--sessions 1,8,64]` builds the language models of Qwen3-Omni (transformers) in bf16 on the device, layer by
layer as `FOLDER/config.json` says, and writes the milliseconds of one step for each number of sessions: a thinker token, a talker token, the
other codes of a frame, and the samples of a frame. Steps run as the reference runs them, operation by operation, and the first two again as
a captured graph over a static cache, where they can be captured.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
import transformers
from transformers import DynamicCache, StaticCache
from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as reference
from transformers.models.qwen3_omni_moe.configuration_qwen3_omni_moe import Qwen3OmniMoeConfig

CACHED = 128  # positions before the measured steps
REPEATS = 12


def built(kind, config):
    """Model of a kind with random weights in bf16 on the device."""
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(DEVICE):
        model = kind(config).eval()
    torch.set_default_dtype(torch.float32)
    return model


def milliseconds(step):
    """Median time of a step, after two that are not counted."""
    times = []
    for at in range(REPEATS + 2):
        synchronise()
        began = time.perf_counter()
        step()
        synchronise()
        if at >= 2:
            times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times)


def synchronise():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def random(*shape):
    return torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16) * 0.1


def eager_token(model, head, sessions):
    """Milliseconds of one token of every session, over a growing cache."""
    width = model.config.hidden_size
    cache = DynamicCache(config=model.config)
    model(inputs_embeds=random(sessions, CACHED, width), past_key_values=cache, use_cache=True)

    def step():
        found = model(inputs_embeds=random(sessions, 1, width), past_key_values=cache, use_cache=True)
        head(found.last_hidden_state).argmax(-1)

    return milliseconds(step)


def graph_token(model, head, sessions):
    """The same as a captured graph: one call of the driver a token."""
    width = model.config.hidden_size
    cache = StaticCache(config=model.config, max_cache_len=2 * CACHED)
    model(inputs_embeds=random(sessions, CACHED, width), past_key_values=cache, use_cache=True)
    row = random(sessions, 1, width)
    position = torch.full((sessions, 1), CACHED, device=DEVICE)
    mask = torch.zeros(sessions, 1, 1, 2 * CACHED, device=DEVICE, dtype=torch.bfloat16)

    def step():
        found = model(inputs_embeds=row, attention_mask=mask, position_ids=position[None].expand(3, -1, -1), past_key_values=cache, use_cache=True)
        return head(found.last_hidden_state).argmax(-1)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return milliseconds(graph.replay)


def measured(name, found, call):
    try:
        found[name] = round(call(), 3)
    except Exception as failure:  # a step that the reference cannot run is a finding, not the end
        found[name] = f"failed: {type(failure).__name__}: {str(failure).splitlines()[0][:160]}"
    print(name, found[name], flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("report", type=Path)
    parser.add_argument("--sessions", default="1,8,64")
    parser.add_argument("--layers", type=int, help="at most that many layers of each stack, to try the script")
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    global DEVICE
    DEVICE = arguments.device
    torch.set_grad_enabled(False)
    fields = json.loads((arguments.folder / "config.json").read_text())
    if arguments.layers:
        limit(fields, arguments.layers)
    config = Qwen3OmniMoeConfig(**fields)
    counts = [int(count) for count in arguments.sessions.split(",")]
    found = {"transformers": transformers.__version__, "torch": torch.__version__}

    thinker, talker = config.thinker_config.text_config, config.talker_config.text_config
    for name, kind, text in (("thinker", reference.Qwen3OmniMoeThinkerTextModel, thinker), ("talker", reference.Qwen3OmniMoeTalkerModel, talker)):
        model = built(kind, text)
        head = built(lambda text: torch.nn.Linear(text.hidden_size, text.vocab_size, bias=False), text)
        for count in counts:
            measured(f"{name}_eager_{count}", found, lambda: eager_token(model, head, count))
            if DEVICE == "cuda":
                measured(f"{name}_graph_{count}", found, lambda: graph_token(model, head, count))
        del model, head
        if DEVICE == "cuda":
            torch.cuda.empty_cache()
    predictor = built(reference.Qwen3OmniMoeTalkerCodePredictorModelForConditionalGeneration, config.talker_config.code_predictor_config)
    groups, width = config.talker_config.num_code_groups, talker.hidden_size
    code2wav = built(reference.Qwen3OmniMoeCode2Wav, config.code2wav_config)
    for count in counts:

        def codes():
            predictor.generate(inputs_embeds=random(count, 2, width), max_new_tokens=groups - 1, do_sample=False)

        measured(f"codes_eager_{count}", found, lambda: milliseconds(codes))
        frames = 50  # 25 of context and 25 new ones
        chunk = torch.randint(0, config.code2wav_config.codebook_size, (count, groups, frames), device=DEVICE)
        measured(f"samples_of_25_frames_{count}", found, lambda: milliseconds(lambda: code2wav(chunk)))
    arguments.report.write_text(json.dumps(found, indent=1) + "\n")


def limit(fields, most):
    for name, value in fields.items():
        if isinstance(value, dict):
            limit(value, most)
        elif name in ("num_hidden_layers", "encoder_layers", "accept_hidden_layer"):
            fields[name] = min(value, most)


if __name__ == "__main__":
    main()
