"""The sampling fixture: scores after each of the reference's logits processors, in the order of its `generate`."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import (
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

VOCAB = 200
# Skipped processors have their neutral setting: a penalty, temperature or top_p of 1, a top_k of 0.
CASES = [
    {"repetition_penalty": 1.05, "suppress": [], "temperature": 0.9, "top_k": 50, "top_p": 1.0},
    {"repetition_penalty": 1.0, "suppress": [], "temperature": 0.7, "top_k": 20, "top_p": 0.8},
    {"repetition_penalty": 1.3, "suppress": list(range(150, 200)), "temperature": 0.9, "top_k": 50, "top_p": 0.95},
    {"repetition_penalty": 1.05, "suppress": [0, 7, 199], "temperature": 1.0, "top_k": 0, "top_p": 0.5},
    {"repetition_penalty": 0.8, "suppress": [], "temperature": 2.0, "top_k": 5, "top_p": 1.0},
    {"repetition_penalty": 1.1, "suppress": list(range(100)), "temperature": 0.3, "top_k": 0, "top_p": 0.9},
    {"repetition_penalty": 1.0, "suppress": [], "temperature": 1.5, "top_k": 1, "top_p": 1.0},
    {"repetition_penalty": 1.2, "suppress": [3], "temperature": 1.0, "top_k": 1000, "top_p": 0.05},
]


def processors(case: dict):
    """(name, processor or None when `generate` would leave it out), in order."""
    penalty, suppress, temperature = case["repetition_penalty"], case["suppress"], case["temperature"]
    return [
        ("after_repetition_penalty", RepetitionPenaltyLogitsProcessor(penalty) if penalty != 1 else None),
        ("after_suppress", SuppressTokensLogitsProcessor(suppress) if suppress else None),
        ("after_temperature", TemperatureLogitsWarper(temperature) if temperature != 1 else None),
        ("after_top_k", TopKLogitsWarper(case["top_k"]) if case["top_k"] else None),
        ("after_top_p", TopPLogitsWarper(case["top_p"]) if case["top_p"] < 1 else None),
    ]


def make(folder: Path, versions: dict) -> None:
    rng = torch.Generator().manual_seed(3)
    tensors = {}
    for index, case in enumerate(CASES):
        logits = 3 * torch.randn(VOCAB, generator=rng)
        assert logits.sort().values.diff().min() > 1e-6, "a tie"
        # Previous ids include the best and the worst, some of them twice: a penalty counts an id once.
        order = logits.argsort(descending=True)
        previous = torch.cat([order[:3], order[:1], order[-3:], torch.randint(VOCAB, (9,), generator=rng)])
        tensors[f"case{index}.logits"] = logits
        tensors[f"case{index}.previous"] = previous.to(torch.int32)
        scores = logits[None].clone()
        for name, processor in processors(case):
            if processor is not None:
                scores = processor(previous[None], scores)
            tensors[f"case{index}.{name}"] = scores[0].clone()
        tensors[f"case{index}.probabilities"] = scores.softmax(dim=-1)[0]
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "expected.safetensors")
    (folder / "expected.json").write_text(
        json.dumps({"versions": versions, "vocab": VOCAB, "cases": CASES}, indent=1) + "\n"
    )
    print(f"sampling: {len(CASES)} cases")
