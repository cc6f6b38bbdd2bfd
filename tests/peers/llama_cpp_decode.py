"""Times llama.cpp on a GGUF file: milliseconds a decoded token, as JSON on standard output.

usage: llama_cpp_decode.py LIBRARIES FILE THREADS PROMPT TOKENS

LIBRARIES is the folder of the prebuilt libraries that the Node package @node-llama-cpp/linux-x64 has. They choose the
kernels that fit the processor best, and repack the weights for them, as llama.cpp does by default. Tokens are given,
not sampled.
"""

import ctypes
import json
import pathlib
import random
import sys
import time


class Opaque(ctypes.Structure):
    """Parameters by value, longer than those of any version: the callee reads and writes its part, which is on the
    stack (x86-64).
    """

    _fields_ = [("bytes", ctypes.c_uint64 * 128)]


class Batch(ctypes.Structure):
    _fields_ = [("count", ctypes.c_int32)] + [
        (name, ctypes.c_void_p) for name in ("token", "embd", "pos", "n", "ids", "logits")
    ]


def library(folder: pathlib.Path) -> ctypes.CDLL:
    found = {path.name.split(".")[0]: path for path in folder.glob("lib*.so")}
    ggml = ctypes.CDLL(str(found["libggml"]), mode=ctypes.RTLD_GLOBAL)
    ggml.ggml_backend_load_all_from_path(str(folder).encode())
    llama = ctypes.CDLL(str(found["libllama"]))
    for name, result, arguments in [
        ("llama_model_default_params", Opaque, []),
        ("llama_context_default_params", Opaque, []),
        ("llama_model_load_from_file", ctypes.c_void_p, [ctypes.c_char_p, Opaque]),
        ("llama_init_from_model", ctypes.c_void_p, [ctypes.c_void_p, Opaque]),
        ("llama_set_n_threads", None, [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32]),
        ("llama_batch_get_one", Batch, [ctypes.c_void_p, ctypes.c_int32]),
        ("llama_decode", ctypes.c_int32, [ctypes.c_void_p, Batch]),
        ("llama_synchronize", None, [ctypes.c_void_p]),
        ("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), [ctypes.c_void_p, ctypes.c_int32]),
        ("llama_model_get_vocab", ctypes.c_void_p, [ctypes.c_void_p]),
        ("llama_vocab_n_tokens", ctypes.c_int32, [ctypes.c_void_p]),
        ("llama_print_system_info", ctypes.c_char_p, []),
        ("llama_version", ctypes.c_char_p, []),
    ]:
        function = getattr(llama, name)
        function.restype, function.argtypes = result, arguments
    return llama


def main() -> None:
    folder, file, *counts = sys.argv[1:]
    threads, prompt, tokens = map(int, counts)
    llama = library(pathlib.Path(folder))
    llama.llama_backend_init()
    started = time.perf_counter()
    model = llama.llama_model_load_from_file(file.encode(), llama.llama_model_default_params())
    if not model:
        sys.exit(f"llama.cpp does not load {file}")
    loading = time.perf_counter() - started
    context = llama.llama_init_from_model(model, llama.llama_context_default_params())
    llama.llama_set_n_threads(context, threads, threads)
    vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    draw = random.Random(7)

    def decode(count: int) -> float:
        ids = (ctypes.c_int32 * count)(*(draw.randrange(vocabulary) for _ in range(count)))
        started = time.perf_counter()
        if llama.llama_decode(context, llama.llama_batch_get_one(ids, count)) != 0:
            sys.exit("llama.cpp does not decode")
        llama.llama_synchronize(context)
        return time.perf_counter() - started

    prefill = decode(prompt)
    for _ in range(4):
        decode(1)
    times = sorted(decode(1) for _ in range(tokens))
    logit = llama.llama_get_logits_ith(context, -1)[0]
    if logit != logit:
        sys.exit("llama.cpp computes NaN: these weights are too large")
    json.dump(
        {
            "version": llama.llama_version().decode(),
            "system": llama.llama_print_system_info().decode(),
            "ms_per_token": 1e3 * sum(times) / len(times),
            "median_ms_per_token": 1e3 * times[len(times) // 2],
            "prefill_ms_per_token": 1e3 * prefill / prompt,
            "loading_s": loading,
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
