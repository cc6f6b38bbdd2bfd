"""Writes matrices in the formats of the package compressed-tensors, and their dequantised values by the package.

    scripts/setup.sh reference_compressed
    target/tools/compressed-tensors/bin/python tests/parity/compressed/make_fixtures.py engine/tests/data/compressed

Each case is a file `CASE.safetensors` with the stored tensors of a module `m`, the matrix that they stand for
(`expected`, float32), and the version of the package in its metadata.
"""

import sys
from pathlib import Path

import compressed_tensors
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize, quantize
from safetensors.torch import save_file

# Name, format, bits, inputs of a group (None: a whole channel), rows, inputs.
CASES = [
    ("int4_group32", "pack-quantized", 4, 32, 20, 96),
    ("int4_group64", "pack-quantized", 4, 64, 17, 128),
    ("int4_group128", "pack-quantized", 4, 128, 5, 256),
    ("int4_channel", "pack-quantized", 4, None, 18, 40),
    ("int8_group32", "pack-quantized", 8, 32, 7, 64),
    ("int8_channel", "int-quantized", 8, None, 19, 72),
]


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for seed, (name, kind, bits, group, rows, inputs) in enumerate(CASES):
        generator = torch.Generator().manual_seed(seed)
        weight = torch.randn(rows, inputs, generator=generator).to(torch.bfloat16)
        args = QuantizationArgs(
            num_bits=bits, type="int", symmetric=True, strategy="group" if group else "channel", group_size=group
        )
        size = group or inputs
        greatest = weight.reshape(rows, inputs // size, size).abs().amax(-1).float()
        scale = (greatest / (2 ** (bits - 1) - 0.5)).to(torch.bfloat16)
        integers = quantize(weight, scale, None, args, dtype=torch.int8)
        # In single precision: the package rounds what it gives to the scale's format.
        expected = dequantize(integers, scale.float(), None, args)
        compressor = BaseCompressor.get_value_from_registry(kind)
        scheme = QuantizationScheme(targets=["Linear"], weights=args, format=kind)
        stored = compressor.compress({"weight": weight, "weight_scale": scale}, scheme)
        tensors = {f"m.{key}": value.contiguous() for key, value in stored.items()}
        tensors["expected"] = expected.float().contiguous()
        metadata = {"compressed-tensors": compressed_tensors.__version__, "format": kind}
        save_file(tensors, str(out / f"{name}.safetensors"), metadata)
        print(name, {key: (str(value.dtype), tuple(value.shape)) for key, value in tensors.items()})


main()
