"""Writes a GGUF file of random weights with the dimensions of a published thinker, for llama.cpp: architecture
qwen3moe, every matrix in one format of 32 numbers a scale, routers and norms in single precision, no tokenizer.

Format: ggml's docs/gguf.md, version 3.
"""

import array
import dataclasses
import json
import pathlib
import random
import struct
from collections.abc import Iterator
from typing import Any

# Type number and bytes of a block of 32 numbers: a scale of half precision, then the integers.
FORMATS = {"q4_0": (2, 18), "q8_0": (8, 34)}
F32 = 0
BLOCK = 32
ALIGNMENT = 32
UINT32, FLOAT32, STRING = 4, 6, 8
Sizes = tuple[int, ...]


@dataclasses.dataclass
class Dimensions:
    """Of `thinker_config.text_config` in a checkpoint's config.json."""

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    experts: int
    chosen: int
    expert_hidden: int
    theta: float
    eps: float

    @staticmethod
    def of(config: pathlib.Path, layers: int) -> "Dimensions":
        text = json.loads(config.read_text())["thinker_config"]["text_config"]
        return Dimensions(
            vocabulary=text["vocab_size"],
            hidden=text["hidden_size"],
            layers=min(layers, text["num_hidden_layers"]),
            heads=text["num_attention_heads"],
            kv_heads=text["num_key_value_heads"],
            head_dim=text["head_dim"],
            experts=text["num_experts"],
            chosen=text["num_experts_per_tok"],
            expert_hidden=text["moe_intermediate_size"],
            theta=text["rope_parameters"]["rope_theta"],
            eps=text["rms_norm_eps"],
        )

    def metadata(self) -> Iterator[tuple[str, int, Any]]:
        """Keys with their type and value."""
        numbers = {
            "vocab_size": self.vocabulary,
            "context_length": 4096,
            "embedding_length": self.hidden,
            "block_count": self.layers,
            "feed_forward_length": self.expert_hidden,
            "expert_feed_forward_length": self.expert_hidden,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.key_length": self.head_dim,
            "attention.value_length": self.head_dim,
            "expert_count": self.experts,
            "expert_used_count": self.chosen,
        }
        yield "general.architecture", STRING, "qwen3moe"
        for key, value in numbers.items():
            yield f"qwen3moe.{key}", UINT32, value
        yield "qwen3moe.rope.freq_base", FLOAT32, self.theta
        yield "qwen3moe.attention.layer_norm_rms_epsilon", FLOAT32, self.eps
        yield "tokenizer.ggml.model", STRING, "none"

    def tensors(self) -> Iterator[tuple[str, Sizes]]:
        """Names with sizes, fastest first; vectors and routers are of single precision."""
        hidden, q, kv = self.hidden, self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield "token_embd.weight", (hidden, self.vocabulary)
        for layer in range(self.layers):
            at = f"blk.{layer}"
            yield f"{at}.attn_norm.weight", (hidden,)
            yield f"{at}.attn_q.weight", (hidden, q)
            yield f"{at}.attn_k.weight", (hidden, kv)
            yield f"{at}.attn_v.weight", (hidden, kv)
            yield f"{at}.attn_output.weight", (q, hidden)
            yield f"{at}.attn_q_norm.weight", (self.head_dim,)
            yield f"{at}.attn_k_norm.weight", (self.head_dim,)
            yield f"{at}.ffn_norm.weight", (hidden,)
            yield f"{at}.ffn_gate_inp.weight", (hidden, self.experts)
            yield f"{at}.ffn_gate_exps.weight", (hidden, self.expert_hidden, self.experts)
            yield f"{at}.ffn_up_exps.weight", (hidden, self.expert_hidden, self.experts)
            yield f"{at}.ffn_down_exps.weight", (self.expert_hidden, hidden, self.experts)
        yield "output_norm.weight", (hidden,)
        yield "output.weight", (hidden, self.vocabulary)

    def bytes_per_token(self, form: str) -> int:
        """Bytes of weights that one token's products read: all but the embeddings and the unchosen experts."""
        read = 0
        for name, sizes in self.tensors():
            if name == "token_embd.weight":
                continue
            share = self.chosen / self.experts if "_exps" in name else 1
            read += int(size(name, sizes, form) * share)
        return read


def count(sizes: Sizes) -> int:
    numbers = 1
    for each in sizes:
        numbers *= each
    return numbers


def is_single(name: str, sizes: Sizes) -> bool:
    return len(sizes) == 1 or "ffn_gate_inp" in name


def size(name: str, sizes: Sizes, form: str) -> int:
    """Bytes of a tensor."""
    return count(sizes) * 4 if is_single(name, sizes) else count(sizes) // BLOCK * FORMATS[form][1]


def text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def write(path: pathlib.Path, dimensions: Dimensions, form: str) -> None:
    """Writes the file under another name first, so that one of this name is whole."""
    metadata, tensors = list(dimensions.metadata()), list(dimensions.tensors())
    header = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    for key, kind, value in metadata:
        packed = text(value) if kind == STRING else struct.pack("<I" if kind == UINT32 else "<f", value)
        header += [text(key), struct.pack("<I", kind), packed]
    offset = 0
    for name, sizes in tensors:
        kind = F32 if is_single(name, sizes) else FORMATS[form][0]
        header += [text(name), struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes), struct.pack("<IQ", kind, offset)]
        offset += -(-size(name, sizes, form) // ALIGNMENT) * ALIGNMENT
    draw = random.Random(7)
    # Blocks whose number is no divisor of a row's, repeated: no row is as the one before.
    scale = struct.pack("<e", 0.003 if form == "q4_0" else 0.0002)
    blocks = b"".join(scale + draw.randbytes(FORMATS[form][1] - 2) for _ in range(32771))
    routers = array.array(
        "f", (draw.uniform(-0.04, 0.04) for _ in range(dimensions.hidden * dimensions.experts + 9973))
    )
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        for piece in header:
            file.write(piece)
        file.write(bytes(-file.tell() % ALIGNMENT))
        for number, (name, sizes) in enumerate(tensors):
            left = size(name, sizes, form)
            if len(sizes) == 1:
                file.write(array.array("f", [1.0] * count(sizes)).tobytes())
            elif is_single(name, sizes):
                start = number * 101 % 9973
                file.write(routers[start : start + count(sizes)].tobytes())
            else:
                start = number * FORMATS[form][1] % len(blocks)
                while left > 0:
                    piece = blocks[start : start + left]
                    file.write(piece)
                    left, start = left - len(piece), 0
            file.write(bytes(-file.tell() % ALIGNMENT))
    partial.rename(path)
