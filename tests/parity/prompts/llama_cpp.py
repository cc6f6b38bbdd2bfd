"""Writes fixtures/prompts/llama_cpp.json: what llama.cpp makes of the 10,000 lines with GGUF vocabularies.

    scripts/setup.sh peers
    python tests/parity/prompts/llama_cpp.py

The vocabularies are those of vocabularies.py. Needs gguf of prompts/requirements.txt, and llama.cpp's prebuilt
libraries (Linux on x86-64). It is the only reference of the cuts that no published tokenizer.json has; where both
exist, the script prints in how many hundreds of lines they differ.
"""

import ctypes
import json
import tempfile
from pathlib import Path

import gguf

from lines import lines
from vocabularies import COUNT, GROUP, HOME, SEED, grouped

LIBRARIES = Path(__file__).parents[2] / "peers/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"
# The parameters of loading are passed by value, and longer here than in any version.
PARAMETERS = 1024
# Byte of the flag "vocabulary only", two before the flag "map the file", the only flag that is set by default.
FLAGS_FROM = 48
NAMES = ["gpt-2", "smollm", "qwen2", "llama-bpe", "tekken", "gpt-4o", "falcon", "default", "qwen35"]


class Parameters(ctypes.Structure):
    """Parameters of loading."""

    _fields_ = [("bytes", ctypes.c_uint8 * PARAMETERS)]


def library() -> ctypes.CDLL:
    """llama.cpp."""
    found = {path.name.split(".")[0]: path for path in LIBRARIES.glob("lib*.so")}
    ggml = ctypes.CDLL(str(found["libggml"]), mode=ctypes.RTLD_GLOBAL)
    ggml.ggml_backend_load_all_from_path(str(LIBRARIES).encode())
    llama = ctypes.CDLL(str(found["libllama"]))
    pointer, number, flag = ctypes.c_void_p, ctypes.c_int32, ctypes.c_bool
    for name, result, arguments in [
        ("llama_model_default_params", Parameters, []),
        ("llama_model_load_from_file", pointer, [ctypes.c_char_p, Parameters]),
        ("llama_model_get_vocab", pointer, [pointer]),
        ("llama_tokenize", number, [pointer, ctypes.c_char_p, number, pointer, number, flag, flag]),
        ("llama_version", ctypes.c_char_p, []),
    ]:
        function = getattr(llama, name)
        function.restype, function.argtypes = result, arguments
    llama.llama_backend_init()
    return llama


def write(file: Path, fields: dict, pre: str | None) -> None:
    """A GGUF file with a vocabulary and no tensors."""
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(8)
    writer.add_feed_forward_length(8)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model(fields["model"])
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(fields["tokens"])
    writer.add_token_types(fields["types"])
    if "scores" in fields:
        writer.add_token_scores(fields["scores"])
        writer.add_unk_token_id(0)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
    if "merges" in fields:
        writer.add_token_merges(fields["merges"])
    if "add_space_prefix" in fields:
        writer.add_add_space_prefix(fields["add_space_prefix"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def encoded(llama: ctypes.CDLL, file: Path, texts: list[str]) -> list[list[int]]:
    """Ids of all texts, marks spelt out."""
    parameters = llama.llama_model_default_params()
    flags = [at for at in range(FLAGS_FROM, PARAMETERS) if parameters.bytes[at] == 1]
    parameters.bytes[flags[0] - 2] = 1
    model = llama.llama_model_load_from_file(str(file).encode(), parameters)
    assert model, "llama.cpp does not load the vocabulary"
    vocabulary = llama.llama_model_get_vocab(model)
    ids = []
    for text in texts:
        data = text.encode()
        buffer = (ctypes.c_int32 * (len(data) + 16))()
        count = llama.llama_tokenize(vocabulary, data, len(data), buffer, len(buffer), False, False)
        assert count >= 0
        ids.append(list(buffer[:count]))
    return ids


def main() -> None:
    """Writes the fixture."""
    llama = library()
    texts = lines(SEED, COUNT)
    known = json.loads((HOME / "vocabularies.json").read_text())["vocabularies"]
    read = lambda name: json.loads((HOME / f"gguf_{name}.json").read_text())  # noqa: E731
    asked = [(pre, read("bytes"), pre) for pre in NAMES] + [
        (name, read(name), None) for name in ("pieces", "pieces_plain")
    ]
    made = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, fields, pre in asked:
            file = Path(folder) / "vocabulary.gguf"
            write(file, fields, pre)
            ids = encoded(llama, file, texts)
            sums = grouped([" ".join(map(str, one)) for one in ids])
            other = known.get(f"gguf {name}")
            if other is None:
                made[f"gguf {name}"] = {"ids": sums, "shown": ids[:4]}
            else:
                print(
                    f"{name}: {sum(a != b for a, b in zip(other['ids'], sums, strict=True))} hundreds of lines differ"
                )
    facts = {
        "llama.cpp": llama.llama_version().decode(),
        "seed": SEED,
        "count": COUNT,
        "group": GROUP,
        "vocabularies": made,
    }
    (HOME / "llama_cpp.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
