"""Writes small files in the published forms of checkpoints, and the numbers that the forms' own tools read from them.

    scripts/setup.sh reference_forms
    target/tools/checkpoint-forms/bin/python tests/parity/checkpoint_forms/make_fixtures.py

The first fixtures are single files for the crate `repartee-checkpoint`, in engine/checkpoint/tests/data. The
numbers that a tool reads from `X.*` are in `X.expected.safetensors` or in the file itself, in float32 unless said
otherwise; the tools' versions are in its metadata:

    blocks.gguf            a matrix of every block format, and a small vocabulary; read by the package gguf
    values.pt              nested dictionaries, views, a parameter; read by torch
    module.pt, call.pt,    a whole module, a call of os.system, the form before PyTorch 1.6: refused
      legacy.pt
    awq_*, gptq_*          matrices packed by AutoAWQ and AutoGPTQ; read by the same
    fp8_*                  matrices of e4m3, by compressed-tensors; the expected numbers are bfloat16

The others are parts of checkpoints for the engine, in engine/tests/data/forms: the matrices of the fixture omni25 in
FP8, AWQ and GPTQ, which its test puts in place of the matrices, and the whole of omni25 in shards of PyTorch.
"""

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import compressed_tensors
import gguf
import numpy as np
import torch
import transformers
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.entrypoints.convert.converters.fp8block_dequantizer import FP8BlockDequantizer
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).resolve().parent.parent.parent.parent
CRATE = ROOT / "engine" / "checkpoint" / "tests" / "data"
ENGINE = ROOT / "engine" / "tests" / "data" / "forms"
OMNI = ROOT / "tests" / "parity" / "fixtures" / "omni25" / "checkpoint"
GROUP = 32
FP8 = torch.float8_e4m3fn


def load_alone(package: str, module: str) -> ModuleType:
    """Imports a module without its package, whose other modules need an older transformers."""
    home = next(Path(path) / package for path in sys.path if (Path(path) / package / "__init__.py").is_file())
    path = home / (module.replace(".", "/") + ".py")
    spec = importlib.util.spec_from_file_location(f"{package}.{module}", path)
    assert spec and spec.loader
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def awq_modules() -> tuple[Any, ModuleType]:
    for name in ("awq", "awq.utils", "awq.modules", "awq.utils.utils"):
        sys.modules[name] = ModuleType(name)
    # The only thing that packing needs of this module, which needs accelerate.
    setattr(sys.modules["awq.utils.utils"], "get_best_device", lambda: "cpu")  # noqa: B010
    load_alone("awq", "utils.module")
    packing = load_alone("awq", "utils.packing_utils")
    return load_alone("awq", "modules.linear.gemm").WQLinear_GEMM, packing


VERSIONS = {
    "gguf": "0.19.0",
    "torch": torch.__version__,
    "compressed-tensors": compressed_tensors.__version__,
    "transformers": transformers.__version__,
    "autoawq": "0.2.7.post3",
    "auto-gptq": "0.7.1",
}


def save(tensors: dict[str, torch.Tensor], path: Path, *tools: str) -> None:
    metadata = {tool: VERSIONS[tool] for tool in tools}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, str(path), metadata)
    path.chmod(0o644)
    print(path.relative_to(ROOT), path.stat().st_size)


# --- GGUF ---------------------------------------------------------------------------------------------------------

TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
# Bytes of a block, and places of its numbers in half precision.
K_BLOCKS = {
    "Q2_K": (84, (80, 82)),
    "Q3_K": (110, (108,)),
    "Q4_K": (144, (0, 2)),
    "Q5_K": (176, (0, 2)),
    "Q6_K": (210, (208,)),
}


def blocks_of(kind: gguf.GGMLQuantizationType, rng: np.random.Generator) -> np.ndarray:
    """Rows of blocks: quantised by the package where it can, else random integers with scales of half precision."""
    rows, width = 3, 512
    if kind.name not in K_BLOCKS:
        return gguf.quants.quantize(rng.standard_normal((rows, width)).astype(np.float32), kind)
    size, halves = K_BLOCKS[kind.name]
    blocks = rng.integers(0, 256, (rows, width // 256, size), dtype=np.uint8)
    for at in halves:
        scales = rng.uniform(1e-4, 2e-2, blocks.shape[:2]).astype(np.float16)
        blocks[:, :, at : at + 2] = scales[..., None].view(np.uint8).reshape(*blocks.shape[:2], 2)
    return blocks.reshape(rows, -1)


def make_gguf() -> None:
    rng = np.random.default_rng(1)
    writer = gguf.GGUFWriter(str(CRATE / "blocks.gguf"), "llama")
    writer.add_name("blocks")
    writer.add_block_count(2)
    writer.add_embedding_length(512)
    writer.add_head_count(8)
    writer.add_context_length(1024)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(["<|end|>", "a", "b", "ab", "é"])
    writer.add_token_types([3, 1, 1, 1, 1])
    writer.add_token_merges(["a b"])
    writer.add_token_scores([0.0, -1.0, -2.0, -3.5, -4.0])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template("{{ messages[0]['content'] }}")
    expected = {}
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        blocks = blocks_of(kind, rng)
        writer.add_tensor(f"{name}.weight", blocks, raw_dtype=kind)
        expected[f"{name}.weight"] = torch.from_numpy(
            gguf.quants.dequantize(blocks, kind).astype(np.float32).reshape(3, 512)
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save(expected, CRATE / "blocks.expected.safetensors", "gguf")


# --- Pickles ------------------------------------------------------------------------------------------------------


class Call:
    def __reduce__(self) -> tuple:
        return os.system, ("touch /tmp/this-pickle-ran",)


def make_pickles() -> None:
    # Modules draw from the global generator.
    torch.manual_seed(2)
    generator = torch.Generator().manual_seed(2)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    base = draw(10, 4)
    values = {
        "Ann": {"bos_token": 151_669, "cond": draw(1, 10), "ref_mel": draw(1, 6, 8).to(torch.bfloat16)},
        "transposed": draw(4, 6).t(),
        "narrow": base[2:5, 1:3],
        "shared": base,
        "half": draw(5).to(torch.float16),
        "double": draw(3).to(torch.float64),
        "integers": torch.arange(-3, 4),
        "flags": torch.tensor([True, False]),
        "scalar": torch.tensor(2.5),
        "parameter": torch.nn.Parameter(draw(2, 2)),
        "state": torch.nn.Linear(3, 2).state_dict(),
        "plain": [1, -2, 2.5, "text", None, True, (3, 2**40)],
    }
    torch.save(values, CRATE / "values.pt")
    flat = {}

    def collect(prefix: str, value: object) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                collect(f"{prefix}{key}.", item)
        elif isinstance(value, torch.Tensor):
            flat[prefix.removesuffix(".")] = value.detach().clone()

    collect("", values)
    save(flat, CRATE / "values.expected.safetensors", "torch")
    torch.save({"layer": torch.nn.Linear(2, 2)}, CRATE / "module.pt")
    torch.save({"weight": draw(2), "more": {"hook": Call()}}, CRATE / "call.pt")
    # Its bytes differ from run to run: this form numbers storages by address.
    torch.save({"weight": draw(2)}, CRATE / "legacy.pt", _use_new_zipfile_serialization=False)


# --- AWQ and GPTQ -------------------------------------------------------------------------------------------------


def grouped(weight: torch.Tensor, group: int, bits: int, symmetric: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales (half precision) and zeros of each group, `[out, groups]`."""
    out, inputs = weight.shape
    groups = weight.float().reshape(out, inputs // group, group)
    most = 2**bits - 1
    if symmetric:
        scales = groups.abs().amax(-1) / (most // 2)
        return scales.clamp(min=1e-4).half(), torch.full(scales.shape, float(2 ** (bits - 1)))
    low, high = groups.amin(-1).clamp(max=-1e-4), groups.amax(-1).clamp(min=1e-4)
    scales = ((high - low) / most).half()
    # Zero points below 1 cannot be stored by GPTQ.
    return scales, (-low / scales.float()).round().clamp(1, most)


def awq(weight: torch.Tensor, group: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    scales, zeros = grouped(weight, group, 4, symmetric=False)
    linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    # Integers are rounded by the tool; in their range, so that none overflows into its neighbour.
    scales_of, zeros_of = (each.repeat_interleave(group, 1) for each in (scales.float(), zeros))
    integers = (weight.float() / scales_of + zeros_of).round().clamp(0, 15)
    linear.weight.data = (integers - zeros_of) * scales_of
    packed = AWQ_LINEAR.from_linear(linear, 4, group, scales=scales.t().float(), zeros=zeros.t())
    stored = {"qweight": packed.qweight, "qzeros": packed.qzeros, "scales": packed.scales}
    numbers = AWQ_PACKING.dequantize_gemm(packed.qweight, packed.qzeros, packed.scales.float(), 4, group)
    return stored, numbers.t().float()


def gptq(
    weight: torch.Tensor, group: int, bits: int, *, symmetric: bool, order: torch.Tensor | None = None
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Packs a matrix; `order` is the group of each input, for a matrix in activation order."""
    out, inputs = weight.shape
    scales, zeros = grouped(weight, group, bits, symmetric)
    index = torch.arange(inputs) // group if order is None else order
    scales_of, zeros_of = scales.float()[:, index], zeros[:, index]
    integers = (weight.float() / scales_of + zeros_of).round().clamp(0, 2**bits - 1)
    linear = torch.nn.Linear(inputs, out, bias=False)
    linear.weight.data = (integers - zeros_of) * scales_of
    linear_of = GPTQ_LINEAR if order is None else GPTQ_ORDERED
    packed = linear_of(bits, group, inputs, out, False, weight_dtype=torch.float32)
    packed.pack(linear, scales.float(), zeros.clone(), index.to(torch.int32))
    packed.g_idx = index.to(torch.int32)
    stored = {name: getattr(packed, name) for name in ("qweight", "qzeros", "g_idx")}
    # In single precision, so that the tool rounds nothing.
    numbers = packed(torch.eye(inputs)).t().float()
    return {**stored, "scales": packed.scales.half()}, numbers


def make_grouped() -> None:
    for seed, (name, rows, inputs, group) in enumerate([("awq_group32", 32, 96, 32), ("awq_group128", 32, 256, 128)]):
        weight = torch.randn(rows, inputs, generator=torch.Generator().manual_seed(10 + seed))
        stored, numbers = awq(weight, group)
        save(
            {**{f"m.{key}": value for key, value in stored.items()}, "expected": numbers},
            CRATE / f"{name}.safetensors",
            "autoawq",
        )
    cases = [
        ("gptq_group32", 32, 96, 32, 4, False, False),
        ("gptq_group128", 32, 256, 128, 4, False, False),
        ("gptq_symmetric", 32, 64, 64, 4, True, False),
        ("gptq_order", 32, 128, 32, 4, False, True),
        ("gptq_eight", 32, 64, 32, 8, True, False),
        ("gptq_eight_zeros", 32, 64, 32, 8, False, False),
    ]
    for seed, (name, rows, inputs, group, bits, symmetric, ordered) in enumerate(cases):
        generator = torch.Generator().manual_seed(20 + seed)
        weight = torch.randn(rows, inputs, generator=generator)
        order = (torch.arange(inputs) // group)[torch.randperm(inputs, generator=generator)] if ordered else None
        stored, numbers = gptq(weight, group, bits, symmetric=symmetric, order=order)
        save(
            {**{f"m.{key}": value for key, value in stored.items()}, "expected": numbers},
            CRATE / f"{name}.safetensors",
            "auto-gptq",
        )


# --- FP8 ----------------------------------------------------------------------------------------------------------


def fp8_blocks(weight: torch.Tensor, block: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Scales of blocks, as a checkpoint stores them, and the numbers in bfloat16 by compressed-tensors."""
    out, inputs = weight.shape
    rows, columns = -(-out // block), -(-inputs // block)
    padded = torch.zeros(rows * block, columns * block)
    padded[:out, :inputs] = weight.float()
    greatest = padded.reshape(rows, block, columns, block).abs().amax((1, 3)).clamp(min=1e-6)
    scale = greatest / torch.finfo(FP8).max
    wide = scale.repeat_interleave(block, 0).repeat_interleave(block, 1)[:out, :inputs]
    stored = {"weight": (weight.float() / wide).to(FP8), "weight_scale_inv": scale}
    converter = FP8BlockDequantizer(targets=["m"], weight_block_size=(block, block))
    numbers = converter.process({f"m.{name}": value.clone() for name, value in stored.items()})["m.weight"]
    return stored, numbers


def make_fp8() -> None:
    generator = torch.Generator().manual_seed(30)
    for name, rows, inputs in (("fp8_block", 200, 136),):
        stored, numbers = fp8_blocks(torch.randn(rows, inputs, generator=generator), 128)
        tensors = {f"m.{key}": value for key, value in stored.items()}
        save({**tensors, "expected": numbers}, CRATE / f"{name}.safetensors", "compressed-tensors")
    for name, strategy in (("fp8_channel", "channel"), ("fp8_tensor", "tensor")):
        weight = torch.randn(24, 40, generator=generator).to(torch.bfloat16)
        args = QuantizationArgs(num_bits=8, type="float", symmetric=True, strategy=strategy)
        greatest = weight.abs().amax(-1, keepdim=True) if strategy == "channel" else weight.abs().amax().reshape(1)
        scale = (greatest.float() / torch.finfo(FP8).max).to(torch.bfloat16)
        compressor = BaseCompressor.get_value_from_registry("float-quantized")
        scheme = QuantizationScheme(targets=["Linear"], weights=args, format="float-quantized")
        stored = compressor.compress({"weight": weight, "weight_scale": scale}, scheme)
        numbers = compressor.decompress(dict(stored), scheme)["weight"]
        tensors = {f"m.{key}": value for key, value in stored.items()}
        save({**tensors, "expected": numbers.to(torch.bfloat16)}, CRATE / f"{name}.safetensors", "compressed-tensors")


# --- Parts of checkpoints for the engine --------------------------------------------------------------------------


def is_converted(name: str, tensor: torch.Tensor) -> bool:
    left_out = ("visual", "embed", "token2wav", "bos_eos", "codec_head", "lm_head")
    return (
        name.endswith(".weight")
        and tensor.dim() == 2
        and tensor.shape[1] % GROUP == 0
        and tensor.shape[0] % GROUP == 0
        and not any(part in name for part in left_out)
    )


def make_checkpoints() -> None:
    whole = load_file(OMNI / "model.safetensors")
    forms: dict[str, dict[str, torch.Tensor]] = {"fp8": {}, "awq": {}, "gptq": {}}
    for name, weight in whole.items():
        if not is_converted(name, weight):
            continue
        module = name.removesuffix(".weight")
        for form, stored in (
            ("fp8", fp8_blocks(weight, 128)[0]),
            ("awq", awq(weight, GROUP)[0]),
            ("gptq", gptq(weight, GROUP, 4, symmetric=False)[0]),
        ):
            forms[form].update({f"{module}.{key}": value for key, value in stored.items()})
    for form, tool in (("fp8", "compressed-tensors"), ("awq", "autoawq"), ("gptq", "auto-gptq")):
        save(forms[form], ENGINE / f"{form}.safetensors", tool)
    names, sizes = sorted(whole), [0]
    shards: list[dict[str, torch.Tensor]] = [{}]
    for name in names:
        if sizes[-1] > 100_000:
            shards.append({})
            sizes.append(0)
        shards[-1][name] = whole[name]
        # An entry of the archive takes about as much again.
        sizes[-1] += whole[name].numel() * whole[name].element_size() + 300
    index = {}
    for number, shard in enumerate(shards, 1):
        file = f"pytorch_model-{number:05}-of-{len(shards):05}.bin"
        torch.save(shard, ENGINE / file)
        print((ENGINE / file).relative_to(ROOT), (ENGINE / file).stat().st_size)
        index.update(dict.fromkeys(shard, file))
    text = json.dumps(
        {
            "metadata": {
                "torch": torch.__version__,
                "total_size": sum(t.numel() * t.element_size() for t in whole.values()),
            },
            "weight_map": index,
        }
    )
    (ENGINE / "pytorch_model.bin.index.json").write_text(text)


AWQ_LINEAR, AWQ_PACKING = awq_modules()
GPTQ_LINEAR = load_alone("auto_gptq", "nn_modules.qlinear.qlinear_cuda_old").QuantLinear
# The other one takes groups to be in order.
GPTQ_ORDERED = load_alone("auto_gptq", "nn_modules.qlinear.qlinear_cuda").QuantLinear

if __name__ == "__main__":
    CRATE.mkdir(parents=True, exist_ok=True)
    ENGINE.mkdir(parents=True, exist_ok=True)
    make_gguf()
    make_pickles()
    make_grouped()
    make_fp8()
    make_checkpoints()
