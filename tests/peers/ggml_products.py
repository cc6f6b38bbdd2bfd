"""Times llama.cpp's products of one row with a weight, as JSON on standard output.

usage: ggml_products.py LIBRARIES FORMAT THREADS MIB PASSES RUN COLUMNSxK...

LIBRARIES is the folder of the prebuilt libraries that the Node package @node-llama-cpp/linux-x64 has. For each shape,
as many weights of FORMAT (q4_0, q4_1, q4_K or q8_0) as fill MIB are multiplied one after the other, so that none is
still in a cache; RUN of them are the nodes of one graph. Weights are repacked for the processor where llama.cpp does so
by default, and the threads wait for the next graph as those of a server do. The fastest graph of all passes counts:
seconds a product, with the row's quantisation.
"""

import array
import ctypes
import json
import pathlib
import random
import sys
import time
from collections.abc import Sequence
from typing import Any

POINTER, SIZE, LONG, INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64, ctypes.c_int
# Numbers of ggml's types.
F32 = 0
FORMATS = {"q4_0": 2, "q4_1": 3, "q8_0": 8, "q4_K": 12}
CPU_DEVICE = 0


class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", SIZE), ("mem_buffer", POINTER), ("no_alloc", ctypes.c_bool)]


class ThreadpoolParams(ctypes.Structure):
    _fields_ = [
        ("cpumask", ctypes.c_bool * 512),
        ("n_threads", INT),
        ("prio", INT),
        ("poll", ctypes.c_uint32),
        ("strict_cpu", ctypes.c_bool),
        ("paused", ctypes.c_bool),
    ]


class Ggml:
    """Functions of the libraries that are used here."""

    def __init__(self, folder: pathlib.Path) -> None:
        found = {path.name.split(".")[0]: path for path in folder.glob("lib*.so")}
        self.libraries = [
            ctypes.CDLL(str(found[name]), mode=ctypes.RTLD_GLOBAL)
            for name in ("libggml-base", "libggml")
            if name in found
        ]
        self.call("ggml_backend_load_all_from_path", None, [ctypes.c_char_p], str(folder).encode())
        self.backend = self.call("ggml_backend_init_by_type", POINTER, [INT, ctypes.c_char_p], CPU_DEVICE, None)
        if not self.backend:
            sys.exit("llama.cpp has no library for this processor")
        self.device = self.call("ggml_backend_get_device", POINTER, [POINTER], self.backend)

    def call(self, name: str, result: Any, arguments: Sequence[Any], *values: object) -> Any:
        function = next(
            (getattr(library, name) for library in self.libraries if hasattr(library, name)),
            None,
        )
        if function is None:
            sys.exit(f"llama.cpp's libraries have no function {name}")
        function.restype, function.argtypes = result, arguments
        return function(*values)

    def of_backend(self, name: str, result: Any, arguments: Sequence[Any]) -> Any:
        """A function that only the processor's own library has."""
        registry = self.call("ggml_backend_dev_backend_reg", POINTER, [POINTER], self.device)
        address = self.call(
            "ggml_backend_reg_get_proc_address", POINTER, [POINTER, ctypes.c_char_p], registry, name.encode()
        )
        return ctypes.CFUNCTYPE(result, *arguments)(address) if address else None

    def context(self, tensors: int) -> int:
        params = InitParams(768 * tensors + (1 << 20), None, True)
        return self.call("ggml_init", POINTER, [InitParams], params)

    def tensor(self, context: int, kind: int, *sizes: int) -> int:
        return self.call("ggml_new_tensor_2d", POINTER, [POINTER, INT, LONG, LONG], context, kind, *sizes)

    def buffer_types(self) -> list[int]:
        """Kinds of memory that repack weights, the preferred first."""
        extra = self.of_backend("ggml_backend_dev_get_extra_bufts", ctypes.POINTER(POINTER), [POINTER])
        found: list[int] = []
        if extra is not None:
            listed = extra(self.device)
            while listed and listed[len(found)]:
                found.append(listed[len(found)])
        return found


def quantised(ggml: Ggml, kind: int, columns: int, k: int) -> bytes:
    """A weight of random numbers, quantised by ggml."""
    draw = random.Random(7)
    row = array.array("f", (draw.uniform(-0.5, 0.5) for _ in range(k + 97)))
    numbers = array.array("f", bytes(4 * columns * k))
    for column in range(columns):
        start = column % 97
        numbers[column * k : (column + 1) * k] = row[start : start + k]
    size = ggml.call("ggml_row_size", SIZE, [INT, LONG], kind, k) * columns
    to = ctypes.create_string_buffer(size)
    arguments = [INT, POINTER, POINTER, LONG, LONG, LONG, POINTER]
    ggml.call("ggml_quantize_chunk", SIZE, arguments, kind, numbers.buffer_info()[0], to, 0, columns, k, None)
    return to.raw


def measure(ggml: Ggml, kind: int, sizes: tuple[int, int], mib: int, passes: int, run: int) -> dict:
    columns, k = sizes
    data = quantised(ggml, kind, columns, k)
    count = (mib << 20) // len(data) // run * run
    weights_in, rest = ggml.context(count), ggml.context(count * 12 + 8)
    weights = [ggml.tensor(weights_in, kind, k, columns) for _ in range(count)]
    x = ggml.tensor(rest, F32, k, 1)
    graphs = []
    for first in range(0, count, run):
        graphs.append(
            ggml.call("ggml_new_graph_custom", POINTER, [POINTER, SIZE, ctypes.c_bool], rest, 2 * run + 8, False)
        )
        for weight in weights[first : first + run]:
            node = ggml.call("ggml_mul_mat", POINTER, [POINTER, POINTER, POINTER], rest, weight, x)
            ggml.call("ggml_build_forward_expand", None, [POINTER, POINTER], graphs[-1], node)
    # Memory that repacks is used if it takes this product, as when a model is loaded.
    memory, name = None, "as stored"
    for kind_of_memory in ggml.buffer_types():
        one = ggml.context(1)
        probe = ggml.tensor(one, kind, k, columns)
        allocate = "ggml_backend_alloc_ctx_tensors_from_buft"
        if not ggml.call(allocate, POINTER, [POINTER, POINTER], one, kind_of_memory):
            continue
        node = ggml.call("ggml_mul_mat", POINTER, [POINTER, POINTER, POINTER], rest, probe, x)
        if ggml.call("ggml_backend_dev_supports_op", ctypes.c_bool, [POINTER, POINTER], ggml.device, node):
            memory = ggml.call(allocate, POINTER, [POINTER, POINTER], weights_in, kind_of_memory)
            name = ggml.call("ggml_backend_buft_name", ctypes.c_char_p, [POINTER], kind_of_memory).decode()
            break
    if not memory:
        ggml.call("ggml_backend_alloc_ctx_tensors", POINTER, [POINTER, POINTER], weights_in, ggml.backend)
    ggml.call("ggml_backend_alloc_ctx_tensors", POINTER, [POINTER, POINTER], rest, ggml.backend)
    write = [POINTER, POINTER, SIZE, SIZE]
    for weight in weights:
        ggml.call("ggml_backend_tensor_set", None, write, weight, data, 0, len(data))
    draw = random.Random(8)
    row = (ctypes.c_float * k)(*(draw.uniform(-0.5, 0.5) for _ in range(k)))
    ggml.call("ggml_backend_tensor_set", None, write, x, ctypes.cast(row, POINTER), 0, 4 * k)
    times = []
    for _ in range(passes + 1):
        for graph in graphs:
            started = time.perf_counter()
            status = ggml.call("ggml_backend_graph_compute", INT, [POINTER, POINTER], ggml.backend, graph)
            times.append((time.perf_counter() - started) / run)
            if status != 0:
                sys.exit("llama.cpp does not compute the product")
    return {"columns": columns, "k": k, "seconds": min(times[len(graphs) :]), "bytes": len(data), "memory": name}


def main() -> None:
    folder, form, *numbers = sys.argv[1:7]
    threads, mib, passes, run = map(int, numbers)
    ggml = Ggml(pathlib.Path(folder))
    set_threads = ggml.of_backend("ggml_backend_set_n_threads", None, [POINTER, INT])
    new_pool = ggml.of_backend("ggml_threadpool_new", POINTER, [ctypes.POINTER(ThreadpoolParams)])
    set_pool = ggml.of_backend("ggml_backend_cpu_set_threadpool", None, [POINTER, POINTER])
    if set_threads is None or new_pool is None or set_pool is None:
        sys.exit("llama.cpp's processor takes no threads")
    set_threads(ggml.backend, threads)
    params = ggml.call("ggml_threadpool_params_default", ThreadpoolParams, [INT], threads)
    set_pool(ggml.backend, new_pool(ctypes.byref(params)))
    shapes = [[int(size) for size in shape.split("x")] for shape in sys.argv[7:]]
    products = [measure(ggml, FORMATS[form], (columns, k), mib, passes, run) for columns, k in shapes]
    json.dump(products, sys.stdout)


main()
