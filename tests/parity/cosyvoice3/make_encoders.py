"""Makes the fixture of CosyVoice3's encoders of recordings: `python make_encoders.py`.

Small random `campplus.onnx` and `speech_tokenizer_v3.onnx`, with the operations that torch's exporter writes for
3D-Speaker's `CAMPPlus` and for `S3TokenizerV3`, and what onnxruntime computes with them;
mel bins of kaldi-native-fbank. With a folder as its argument it writes both files there in the published dimensions
instead, for `cargo bench --bench cloning`, and times onnxruntime on them.
Needs numpy, onnx, onnxruntime, safetensors and kaldi-native-fbank, without torch.
"""

import importlib.metadata
import json
import math
import sys
from pathlib import Path
from time import monotonic

import kaldi_native_fbank
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
FOLDER = FIXTURES / "cosyvoice3_encoders"
CHECKPOINT = FIXTURES / "cosyvoice3" / "checkpoint"
OPSET = 17
RATE = 16_000
SEGMENT = 100
# The speaker's encoder.
SPEAKER = {"bins": 16, "channels": 4, "first": 8, "growth": 8, "inner": 16, "width": 12}
BLOCKS = [2, 3, 2]
DILATIONS = (1, 2, 2)
# The tokenizer.
SPEECH = {"bins": 8, "width": 32, "heads": 2, "layers": 2, "taps": 31, "levels": 3}
THETA = 10_000.0
SPEAKER_FRAMES, SPEECH_FRAMES = 230, 90
# Sizes of the published files, and frames of a recording of 10 s.
PUBLISHED_SPEAKER = {"bins": 80, "channels": 32, "first": 128, "growth": 32, "inner": 128, "width": 192}
PUBLISHED_BLOCKS = (12, 24, 16)
PUBLISHED_SPEECH = {"bins": 128, "width": 1280, "heads": 20, "layers": 12, "taps": 31, "levels": 8}
PUBLISHED_FRAMES = (998, 1000)
# Deviation of the gates' weights, so that no gate is always open or closed.
GATE = 0.1
# Least distance of a number from the middle between two levels.
MARGIN = 2e-3


class Graph:
    """A graph under construction."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def add(self, kind: str, inputs: list[str], name: str, **attributes) -> str:
        """Adds a node; returns its output's name."""
        output = f"/{name}/{kind}_output_{len(self.nodes)}"
        own = f"/{name}/{kind}"
        if any(node.name == own for node in self.nodes):
            own += f"_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], name=own, **attributes))
        return output

    def constant(self, name: str, values) -> str:
        """Adds an initializer."""
        array = np.asarray(values)
        array = array.astype(np.int64) if array.dtype.kind == "i" else array.astype(np.float32)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def node_constant(self, name: str, values) -> str:
        """Adds a constant as a node, as the exporter does with some."""
        tensor = numpy_helper.from_array(np.asarray(values, dtype=np.float32))
        self.nodes.append(helper.make_node("Constant", [], [name], name=f"/{name}", value=tensor))
        return name

    def drawn(self, name: str, *shape: int, scale: float | None = None) -> str:
        """Adds a random weight."""
        inputs = math.prod(shape[1:]) if len(shape) > 1 else 1
        by = 2.0 / inputs**0.5 if scale is None else scale
        return self.constant(name, self.rng.standard_normal(shape) * by)

    def norm(self, x: str, name: str, channels: int) -> str:
        """Batch norm."""
        inputs = [
            self.constant(f"{name}.weight", self.rng.uniform(0.5, 1.5, channels)),
            self.constant(f"{name}.bias", self.rng.standard_normal(channels)),
            self.constant(f"{name}.running_mean", self.rng.standard_normal(channels) * 0.2),
            self.constant(f"{name}.running_var", self.rng.uniform(0.5, 1.5, channels)),
        ]
        return self.add("BatchNormalization", [x, *inputs], name, epsilon=1e-5)

    def conv(
        self, x: str, name: str, shape: tuple[int, ...], bias: bool = True, scale: float | None = None, **attributes
    ):
        """Convolution; its weight and bias have the exporter's numbers for names, as after a folded norm."""
        number = len(self.constants)
        inputs = [x, self.drawn(f"onnx::Conv_{number}", *shape, scale=scale)]
        if bias:
            # Above zero, so that no number behind a bias is always cut off.
            inputs.append(self.constant(f"onnx::Conv_{number + 1}", self.rng.uniform(0.2, 0.8, shape[0])))
        return self.add("Conv", inputs, name, **attributes)

    def run(self, path: Path, inputs: dict[str, list], outputs: dict[str, tuple[str, list]], feed: dict) -> list:
        """Saves the graph, with outputs by name, and runs the file."""
        for name, (value, _) in outputs.items():
            self.nodes.append(helper.make_node("Identity", [value], [name]))
        made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
        given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, (_, shape) in outputs.items()]
        graph = helper.make_graph(self.nodes, "main_graph", made, given, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        onnx.checker.check_model(model)
        onnx.save(model, path)
        return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feed)


def speaker(mel: np.ndarray, folder: Path = CHECKPOINT) -> np.ndarray:
    """Saves the speaker's encoder for as many frames; returns the embedding of `[frames, bins]`."""
    graph, size = Graph(1), SPEAKER
    bins, channels = size["bins"], size["channels"]

    def relu(x: str, name: str) -> str:
        return graph.add("Relu", [x], name)

    def image(x: str, name: str, inputs: int, stride: int, kernel: int = 3) -> str:
        pad = kernel // 2
        shape = (channels, inputs, kernel, kernel)
        return graph.conv(x, name, shape, strides=[stride, 1], pads=[pad] * 4, kernel_shape=[kernel, kernel])

    x = graph.add("Transpose", ["input"], "head", perm=[0, 2, 1])
    x = graph.add("Unsqueeze", [x, graph.constant("axis_one", [1])], "head")
    # This norm is not folded.
    number = graph.drawn("head.conv1.weight", channels, 1, 3, 3)
    x = graph.add("Conv", [x, number], "head/conv1", pads=[1] * 4, kernel_shape=[3, 3], strides=[1, 1])
    x = relu(graph.norm(x, "head.bn1", channels), "head")
    for layer in ("layer1", "layer2"):
        for block, stride in enumerate((2, 1)):
            name = f"head/{layer}/{layer}.{block}"
            h = relu(image(x, f"{name}/conv1", channels, stride), name)
            h = image(h, f"{name}/conv2", channels, 1)
            if stride > 1:
                x = image(x, f"{name}/shortcut", channels, stride, 1)
            x = relu(graph.add("Add", [h, x], name), f"{name}/out")
    x = relu(image(x, "head/conv2", channels, 2), "head/end")
    width = channels * (bins // 8)
    x = graph.add("Reshape", [x, graph.constant("joined", [1, width, -1])], "head")

    def plain(x: str, name: str, shape: tuple[int, int], bias: bool = False, scale: float | None = None) -> str:
        return graph.conv(x, name, (*shape, 1), bias, scale, kernel_shape=[1])

    x = graph.conv(x, "xvector/tdnn/linear", (size["first"], width, 5), strides=[2], pads=[2, 2], kernel_shape=[5])
    x, width = relu(x, "xvector/tdnn"), size["first"]
    inner, growth = size["inner"], size["growth"]
    for block, (layers, dilation) in enumerate(zip(BLOCKS, DILATIONS, strict=True), 1):
        for unit in range(1, layers + 1):
            name = f"xvector/block{block}/tdnnd{unit}"
            h = relu(graph.norm(x, name.replace("/", ".") + ".nonlinear1.batchnorm", width), name)
            h = relu(plain(h, f"{name}/linear1", (inner, width), True), f"{name}/second")
            at = f"{name}/cam_layer"
            shape, pads = (growth, inner, 3), [dilation, dilation]
            local = graph.conv(h, f"{at}/linear_local", shape, False, kernel_shape=[3], dilations=[dilation], pads=pads)
            mean = graph.add("ReduceMean", [h], at, axes=[-1], keepdims=1)
            width_of = [SEGMENT]
            pooled = graph.add(
                "AveragePool", [h], at, kernel_shape=width_of, strides=width_of, ceil_mode=1, count_include_pad=0
            )
            segments = -(-((len(mel) + 1) // 2) // SEGMENT)
            for op, argument in (
                ("Unsqueeze", graph.constant(f"{at}/axis", [-1])),
                ("Expand", graph.constant(f"{at}/shape", [1, inner, segments, SEGMENT])),
                ("Reshape", graph.constant(f"{at}/flat", [1, inner, segments * SEGMENT])),
            ):
                pooled = graph.add(op, [pooled, argument], at)
            ends = [[0], [(len(mel) + 1) // 2], [-1]]
            inputs = [graph.constant(f"{at}/slice{i}", value) for i, value in enumerate(ends)]
            pooled = graph.add("Slice", [pooled, *inputs], at)
            h = graph.add("Add", [mean, pooled], at)
            h = relu(plain(h, f"{at}/linear1", (inner // 2, inner), True, GATE), f"{at}/hidden")
            h = graph.add("Sigmoid", [plain(h, f"{at}/linear2", (growth, inner // 2), True, GATE)], at)
            x = graph.add("Concat", [x, graph.add("Mul", [local, h], at)], name, axis=1)
            width += growth
        name = f"xvector/transit{block}"
        x = relu(graph.norm(x, name.replace("/", ".") + ".nonlinear.batchnorm", width), name)
        # The norm after the last one is folded.
        x, width = plain(x, f"{name}/linear", (width // 2, width), block == len(DILATIONS)), width // 2
    x = relu(x, "xvector/out_nonlinear")
    mean = graph.add("ReduceMean", [x], "xvector/stats", axes=[-1], keepdims=1)
    square = graph.add("Sub", [x, mean], "xvector/stats")
    square = graph.add("Mul", [square, square], "xvector/stats")
    total = graph.add("ReduceSum", [square, graph.constant("time", [-1])], "xvector/stats", keepdims=1)
    count = graph.constant("others", (len(mel) + 1) // 2 - 1.0)
    deviation = graph.add("Sqrt", [graph.add("Div", [total, count], "xvector/stats")], "xvector/stats")
    x = graph.add("Concat", [mean, deviation], "xvector/stats", axis=1)
    x = plain(x, "xvector/dense/linear", (size["width"], 2 * width), True)
    x = graph.add("Squeeze", [x, graph.constant("last", [-1])], "xvector/dense")
    outputs = {"output": (x, [1, size["width"]])}
    return graph.run(folder / "campplus.onnx", {"input": [1, None, bins]}, outputs, {"input": mel[None]})[0][0]


def speech(mel: np.ndarray, folder: Path = CHECKPOINT, margin: float = MARGIN) -> tuple[np.ndarray, np.ndarray]:
    """Saves the tokenizer for as many frames; returns the last layer's rows and the codes of `[frames, bins]`."""
    graph, size = Graph(2), SPEECH
    width, heads, taps = size["width"], size["heads"], size["taps"]
    head = width // heads

    def product(x: str, name: str, out: int, inputs: int, bias: bool = True, as_node: bool = False) -> str:
        by = 0.03 if out == size["levels"] else 0.25
        weight = graph.constant(f"onnx::MatMul_{len(graph.constants)}", graph.rng.standard_normal((inputs, out)) * by)
        x = graph.add("MatMul", [x, weight], name)
        if not bias:
            return x
        values = graph.rng.standard_normal(out) * (1.0 if out == size["levels"] else 0.3)
        name_of = name.strip("/").replace("/", ".") + ".bias"
        vector = graph.node_constant(name_of, values) if as_node else graph.constant(name_of, values)
        return graph.add("Add", [vector, x], name)

    def norm(x: str, name: str) -> str:
        mean = graph.add("ReduceMean", [x], name, axes=[-1], keepdims=1)
        centred = graph.add("Sub", [x, mean], name)
        square = graph.add("Pow", [centred, graph.constant(f"{name}/two", 2.0)], name)
        variance = graph.add("ReduceMean", [square], f"{name}/square", axes=[-1], keepdims=1)
        root = graph.add("Add", [variance, graph.constant(f"{name}/epsilon", 1e-5)], f"{name}/epsilon")
        x = graph.add("Div", [centred, graph.add("Sqrt", [root], name)], name)
        x = graph.add("Mul", [x, graph.constant(f"{name}.weight", graph.rng.uniform(0.5, 1.5, width))], name)
        return graph.add("Add", [x, graph.constant(f"{name}.bias", graph.rng.standard_normal(width) * 0.2)], name)

    def gelu(x: str, name: str) -> str:
        h = graph.add("Erf", [graph.add("Div", [x, graph.constant(f"{name}/root", 2.0**0.5)], name)], name)
        h = graph.add("Add", [h, graph.constant(f"{name}/one", 1.0)], f"{name}/one")
        h = graph.add("Mul", [x, h], name)
        return graph.add("Mul", [h, graph.constant(f"{name}/half", 0.5)], f"{name}/half")

    x = "mels"
    for name, inputs in (("conv1", size["bins"]), ("conv2", width)):
        x = graph.conv(x, name, (width, inputs, 3), strides=[2], pads=[1, 1], kernel_shape=[3])
        x = gelu(x, name)
    x = graph.add("Transpose", [x], "rows", perm=[0, 2, 1])
    rows = (len(mel) + 3) // 4
    angle = np.arange(rows)[:, None] * THETA ** -(np.arange(0, head, 2) / head)[None]
    table = [np.concatenate([f(angle), f(angle)], 1)[None, :, None, :] for f in (np.cos, np.sin)]
    cosine, sine = (graph.constant(name, values) for name, values in zip(("cos", "sin"), table, strict=True))
    split = graph.constant("heads", [1, rows, heads, head])
    joined = graph.constant("joined", [1, rows, width])
    halves = graph.constant("halves", [head // 2, head // 2])

    def rotated(x: str, name: str) -> str:
        outputs = [f"{name}/low", f"{name}/high"]
        graph.nodes.append(helper.make_node("Split", [x, halves], outputs, name=f"/{name}/Split", axis=-1))
        turned = graph.add("Concat", [graph.add("Neg", [outputs[1]], name), outputs[0]], name, axis=-1)
        by = [graph.add("Mul", [x, cosine], name), graph.add("Mul", [turned, sine], f"{name}/turned")]
        return graph.add("Add", by, name)

    for layer in range(size["layers"]):
        name = f"blocks.{layer}"
        h = norm(x, f"{name}/attn_ln")
        q, k, v = (
            product(h, f"{name}/attn/{part}", width, width, part != "key", layer == 1)
            for part in ("query", "key", "value")
        )
        at = f"{name}/attn"
        memory = graph.add("Transpose", [v], f"{at}/fsmn", perm=[0, 2, 1])
        weight = graph.constant(f"{name}.attn.fsmn_block.weight", graph.rng.standard_normal((width, 1, taps)) * 0.1)
        kernel = {"kernel_shape": [taps], "pads": [taps // 2, taps // 2], "group": width}
        memory = graph.add("Conv", [memory, weight], f"{at}/fsmn_block", **kernel)
        memory = graph.add("Transpose", [memory], f"{at}/fsmn_block", perm=[0, 2, 1])
        memory = graph.add("Add", [memory, v], f"{at}/memory")
        q, k, v = (graph.add("Reshape", [part, split], f"{at}/heads") for part in (q, k, v))
        scale = graph.constant(f"{name}/scale", head**-0.25)
        q, k = (graph.add("Mul", [rotated(part, f"{at}/{i}"), scale], at) for i, part in enumerate((q, k)))
        q, v = (graph.add("Transpose", [part], at, perm=[0, 2, 1, 3]) for part in (q, v))
        k = graph.add("Transpose", [k], at, perm=[0, 2, 3, 1])
        weights = graph.add("Softmax", [graph.add("MatMul", [q, k], at)], at, axis=-1)
        h = graph.add("Transpose", [graph.add("MatMul", [weights, v], f"{at}/sum")], at, perm=[0, 2, 1, 3])
        h = product(graph.add("Reshape", [h, joined], at), f"{at}/out", width, width)
        x = graph.add("Add", [x, graph.add("Add", [h, memory], f"{at}/sum")], name)
        h = norm(x, f"{name}/mlp_ln")
        h = gelu(product(h, f"{name}/mlp/mlp.0", 4 * width, width), f"{name}/mlp")
        x = graph.add("Add", [x, product(h, f"{name}/mlp/mlp.2", width, 4 * width)], f"{name}/mlp")
    h = product(x, "quantizer/project_in", size["levels"], width)
    level = graph.add(
        "Mul", [graph.add("Tanh", [h], "quantizer"), graph.constant("most", 0.9990000128746033)], "quantizer"
    )
    digit = graph.add("Add", [graph.add("Round", [level], "quantizer"), graph.constant("one", 1.0)], "quantizer")
    powers = graph.constant("powers", 3.0 ** np.arange(size["levels"]))
    digits = [graph.add("Mul", [digit, powers], "quantizer"), graph.constant("digits", [-1])]
    code = graph.add("ReduceSum", digits, "quantizer", keepdims=0)
    outputs = {
        "hidden": (x, [1, rows, width]),
        "levels": (level, [1, rows, size["levels"]]),
        "codes": (code, [1, rows]),
    }
    feed = {"mels": mel.T[None]}
    path = folder / "speech_tokenizer_v3.onnx"
    hidden, levels, codes = graph.run(path, {"mels": [1, size["bins"], None]}, outputs, feed)
    assert np.abs(np.abs(levels) - 0.5).min() > margin, "a code is close to another"
    return hidden[0], codes[0].astype(np.int32)


def kaldi(samples: np.ndarray, bins: int) -> np.ndarray:
    """Logarithmic mel bins of samples at 16 kHz."""
    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.samp_freq = RATE
    options.frame_opts.dither = 0
    options.mel_opts.num_bins = bins
    bank = kaldi_native_fbank.OnlineFbank(options)
    bank.accept_waveform(RATE, samples.tolist())
    bank.input_finished()
    return np.stack([bank.get_frame(i) for i in range(bank.num_frames_ready)])


def published(folder: Path) -> None:
    """Writes the files in published dimensions, and times them on one thread."""
    SPEAKER.update(PUBLISHED_SPEAKER)
    BLOCKS[:] = PUBLISHED_BLOCKS
    SPEECH.update(PUBLISHED_SPEECH)
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(3)
    shapes = zip(PUBLISHED_FRAMES, (SPEAKER["bins"], SPEECH["bins"]), strict=True)
    speaker_mel, speech_mel = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    speaker(speaker_mel, folder)
    speech(speech_mel, folder, -1.0)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    taken = {}
    for file, feed in (
        ("campplus.onnx", {"input": speaker_mel[None]}),
        ("speech_tokenizer_v3.onnx", {"mels": speech_mel.T[None]}),
    ):
        session = onnxruntime.InferenceSession(folder / file, options, providers=["CPUExecutionProvider"])
        session.run(None, feed)
        begun = monotonic()
        session.run(None, feed)
        taken[file] = {"seconds": monotonic() - begun, "bytes": (folder / file).stat().st_size}
    print(json.dumps(taken))


def main() -> None:
    """Makes the fixture."""
    if len(sys.argv) > 1:
        published(Path(sys.argv[1]))
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(3)
    speaker_mel = rng.standard_normal((SPEAKER_FRAMES, SPEAKER["bins"])).astype(np.float32)
    speech_mel = rng.standard_normal((SPEECH_FRAMES, SPEECH["bins"])).astype(np.float32)
    hidden, codes = speech(speech_mel)
    time = np.arange(RATE // 2) / RATE
    sound = 0.3 * np.sin(2 * np.pi * (200 + 900 * time) * time) + 0.05 * rng.standard_normal(len(time))
    sound = (np.round(sound * 32768) / 32768).astype(np.float32)
    tensors = {
        "speaker.mel": speaker_mel,
        "speaker.embedding": speaker(speaker_mel),
        "speech.mel": speech_mel,
        "speech.hidden": hidden,
        "speech.codes": codes,
        "fbank.samples": sound,
        "fbank.mel": kaldi(sound, 80),
    }
    save_file({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, FOLDER / "expected.safetensors")
    packages = ("numpy", "onnx", "onnxruntime", "kaldi-native-fbank")
    facts = {
        "versions": {name: importlib.metadata.version(name) for name in packages},
        "oracle": "onnxruntime on the same files",
        "codes": len(set(codes.tolist())),
    }
    (FOLDER / "expected.json").write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
