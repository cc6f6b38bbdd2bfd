"""Peers on the same weights: faster-whisper, onnxruntime for Kokoro, llama.cpp."""

import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from common import ROOT, WIRE_RATE, samples
from demo_recipe import kokoro, phonemes
from demo_recipe.evaluate.words import errors
from sounds import at_model_rate, question

sys.path.append(str(ROOT / "tests/peers"))
LIBRARIES = ROOT / "tests/peers/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"


def models() -> Path:
    """Folder of the fetched parts, as scripts/real-models.py has it."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("REPARTEE_MODELS") or Path(home) / "repartee/models")


class Ear:
    """Whisper base in faster-whisper, int8 and greedy: the peer of our recogniser, and the judge of the voice."""

    def __init__(self, threads: int = 2) -> None:
        from faster_whisper import WhisperModel

        folder = str(models() / "whisper-base")
        self._model = WhisperModel(folder, device="cpu", compute_type="int8", cpu_threads=threads)

    def hear(self, sound: bytes) -> str:
        """Writes down 16-bit PCM at 24 kHz."""
        return self.hear_samples(at_model_rate(samples(sound)))

    def hear_samples(self, sound: np.ndarray) -> str:
        """Writes down samples at 16 kHz."""
        segments, _ = self._model.transcribe(
            sound, language="en", beam_size=1, without_timestamps=True, vad_filter=False
        )
        return " ".join(segment.text.strip() for segment in segments)

    def hear_long(self, sound: bytes) -> str:
        """The same for sound that is longer than a window."""
        segments, _ = self._model.transcribe(at_model_rate(samples(sound)), language="en", beam_size=1)
        return " ".join(segment.text.strip() for segment in segments)


def clear(listed: list[dict], ear: Ear, count: int) -> list[dict]:
    """The first questions that the judge hears without an error: a client's check shall not hang on hearing."""
    found = []
    for one in listed:
        if errors(one["text"], ear.hear(question(one["text"], one["voice"]))).wrong == 0:
            found.append(one)
        if len(found) == count:
            break
    return found


class Voice:
    """Kokoro in onnxruntime."""

    def __init__(self, threads: int = 2) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 3
        model = str(kokoro.FOLDER / "model.onnx")
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def prepared(self, text: str, voice: str) -> Callable[[], np.ndarray]:
        """Phonemes of a text, ready to be spoken; the call returns samples at 24 kHz."""
        symbols = phonemes.of(text, phonemes.BRITISH if voice.startswith("b") else phonemes.AMERICAN)
        style = kokoro.style(voice)[min(len(symbols), 510) - 1]
        feed = {"tokens": kokoro.ids(symbols), "style": style, "speed": np.array([1.0], np.float32)}
        return lambda: self._session.run([kokoro.SOUND], feed)[0].reshape(-1)

    def speak(self, text: str, voice: str) -> np.ndarray:
        """Samples at 24 kHz."""
        assert kokoro.RATE == WIRE_RATE
        return self.prepared(text, voice)()


class Writer:
    """A model of text in llama.cpp, greedy."""

    def __init__(self, file: Path, threads: int = 2) -> None:
        import llama_cpp_decode as llama_cpp

        self._llama = llama = llama_cpp.library(LIBRARIES)
        self._batch = llama_cpp.Batch
        self._quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
        llama.llama_log_set(self._quiet, None)
        token = ctypes.c_int32
        for name, result, given in [
            ("llama_free", None, [ctypes.c_void_p]),
            (
                "llama_tokenize",
                token,
                [ctypes.c_void_p, ctypes.c_char_p, token, ctypes.c_void_p, token, ctypes.c_bool, ctypes.c_bool],
            ),
            ("llama_token_to_piece", token, [ctypes.c_void_p, token, ctypes.c_char_p, token, token, ctypes.c_bool]),
            ("llama_vocab_is_eog", ctypes.c_bool, [ctypes.c_void_p, token]),
        ]:
            function = getattr(llama, name)
            function.restype, function.argtypes = result, given
        llama.llama_backend_init()
        self._model = llama.llama_model_load_from_file(str(file).encode(), llama.llama_model_default_params())
        if not self._model:
            raise SystemExit(f"llama.cpp does not load {file}")
        self._vocabulary = llama.llama_model_get_vocab(self._model)
        self._size, self._threads = llama.llama_vocab_n_tokens(self._vocabulary), threads

    def answer(self, instructions: str, question: str, most: int = 400) -> str:
        """Answers a question in the turns that ChatML templates write."""
        turns = [("system", instructions), ("user", question)]
        prompt = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns) + "<|im_start|>assistant\n"
        data = prompt.encode()
        ids = (ctypes.c_int32 * (len(data) + 8))()
        count = self._llama.llama_tokenize(self._vocabulary, data, len(data), ids, len(ids), False, True)
        context = self._llama.llama_init_from_model(self._model, self._llama.llama_context_default_params())
        self._llama.llama_set_n_threads(context, self._threads, self._threads)
        text, piece = b"", ctypes.create_string_buffer(256)
        batch = (ctypes.c_int32 * count)(*ids[:count])
        for _ in range(most):
            if self._llama.llama_decode(context, self._llama.llama_batch_get_one(batch, len(batch))) != 0:
                raise SystemExit("llama.cpp does not decode")
            logits = np.ctypeslib.as_array(self._llama.llama_get_logits_ith(context, -1), (self._size,))
            best = int(logits.argmax())
            if self._llama.llama_vocab_is_eog(self._vocabulary, best):
                break
            length = self._llama.llama_token_to_piece(self._vocabulary, best, piece, len(piece), 0, False)
            text += piece.raw[: max(0, length)]
            batch = (ctypes.c_int32 * 1)(best)
        self._llama.llama_free(context)
        return text.decode(errors="replace")
