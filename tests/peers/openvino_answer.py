"""Times OpenVINO GenAI's OmniPipeline on one spoken question: `openvino_answer.py CHECKPOINT WAV EXPORTED --threads N`.

Prints one line of JSON. EXPORTED is a folder for what optimum-intel makes of the checkpoint; it is made once, and anew
when the checkpoint's weights change. Text is chosen greedily, codes as the checkpoint says. What the pipeline leaves to
itself (precision, threads of its own, streams) stays so.
"""

import argparse
import hashlib
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import time
from math import gcd
from typing import Any

import numpy as np
import openvino
import openvino_genai
import soundfile
from scipy.signal import resample_poly

INPUT_RATE, OUTPUT_RATE = 16000, 24000
# The demo is published without one. Audio precedes the text, which is empty.
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def export(checkpoint: pathlib.Path, exported: pathlib.Path) -> None:
    """Exports the checkpoint unless that was done with the same weights."""
    digest = hashlib.sha256()
    for file in sorted(checkpoint.glob("*.safetensors")):
        digest.update(file.read_bytes())
    mark = exported / "made-of.txt"
    if mark.exists() and mark.read_text() == digest.hexdigest():
        return
    shutil.rmtree(exported, ignore_errors=True)
    tool = pathlib.Path(sys.executable).with_name("optimum-cli")
    arguments: list[str | pathlib.Path] = [
        "export",
        "openvino",
        "--model",
        checkpoint,
        "--task",
        "any-to-any",
        exported,
    ]
    done = subprocess.run([tool, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"optimum-cli does not export {checkpoint}:\n{done.stdout}")
    mark.write_text(digest.hexdigest())


def question(path: pathlib.Path) -> np.ndarray:
    audio, rate = soundfile.read(path, dtype="float32", always_2d=True)
    audio = audio.mean(axis=1)
    common = gcd(rate, INPUT_RATE)
    return audio if rate == INPUT_RATE else resample_poly(audio, INPUT_RATE // common, rate // common).astype("float32")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("wav", type=pathlib.Path)
    parser.add_argument("exported", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5, help="timed answers, after two untimed (default: 5)")
    arguments = parser.parse_args()
    export(arguments.checkpoint, arguments.exported)
    pipeline = openvino_genai.OmniPipeline(arguments.exported, "CPU", INFERENCE_NUM_THREADS=arguments.threads)
    pipeline.get_vlm().get_tokenizer().set_chat_template(TEMPLATE)
    text = openvino_genai.GenerationConfig()
    text.max_new_tokens, text.do_sample = 100, False
    speech = openvino_genai.OmniTalkerSpeechConfig()
    heard = openvino.Tensor(question(arguments.wav))

    def answer() -> tuple[float, Any]:
        begin = time.perf_counter()
        result = pipeline.generate("", audios=[heard], text_config=text, talker_speech_config=speech)
        return time.perf_counter() - begin, result

    for _ in range(2):
        answer()
    answers = [answer() for _ in range(arguments.repeats)]
    result = answers[-1][1]
    print(
        json.dumps(
            {
                "version": openvino_genai.__version__,
                "answer_seconds": statistics.median(seconds for seconds, _ in answers),
                "audio_seconds": result.speech_result.waveforms[0].get_size() / OUTPUT_RATE,
                "text": result.texts[0],
            }
        )
    )


main()
