"""Times the reference of Qwen3-TTS: `python bench_reference.py CHECKPOINT [--random]`.

Prints one line of JSON. All times are of the reference's own `generate` and codec, sampled as in the checkpoint, after
one that is not counted; the end of speech is never chosen, so that every answer has as many frames. It does not stream:
all sound is there at the end.
"""

import argparse
import json
import sys
import warnings
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))

import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer

from clock import Clock, medians, read_config, timed
from configs import UNUSED_ENCODER
from reference import (
    Qwen3TTSConfig,
    Qwen3TTSForConditionalGeneration,
    Qwen3TTSTokenizerV2Config,
    Qwen3TTSTokenizerV2Model,
)

TEXT = "the quick brown fox jumps over the lazy dog and then sings a song about the rain on the sea "


def load(folder: Path, random: bool, layers: int | None, dtype):
    """The models of a checkpoint, or of its dimensions with random weights."""
    speech = folder / "speech_tokenizer"
    config = Qwen3TTSConfig(**read_config(folder, layers))
    # Folders of dimensions leave out the codec's encoder, which is not timed.
    raw = read_config(speech, layers)
    codec_config = Qwen3TTSTokenizerV2Config(**({"encoder_config": UNUSED_ENCODER} | raw))
    model = Qwen3TTSForConditionalGeneration._from_config(config, dtype=dtype).eval()
    codec = Qwen3TTSTokenizerV2Model._from_config(codec_config, dtype=torch.float32).eval()
    if not random:
        model.load_state_dict(
            {name: value.to(dtype) for name, value in load_file(folder / "model.safetensors").items()}
        )
        read = load_file(speech / "model.safetensors")
        codec.load_state_dict({name: value.float() for name, value in read.items()}, strict=False)
    return model, codec


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--random", action="store_true", help="draw the weights: the folder has none")
    parser.add_argument("--layers", type=int, help="most layers of each stack (default: all)")
    parser.add_argument("--threads", type=int, default=2, help="torch threads (default: 2)")
    parser.add_argument("--repeats", type=int, default=3, help="timed answers, after one untimed (default: 3)")
    parser.add_argument("--characters", type=int, default=40, help="of the text (default: 40)")
    parser.add_argument("--frames", type=int, default=25, help="of the answer (default: 25)")
    parser.add_argument("--dtype", default="float32", help="of the talker (default: float32); the codec's is float32")
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    torch.set_grad_enabled(False)
    torch.manual_seed(1)
    transformers.logging.set_verbosity_error()
    warnings.filterwarnings("ignore")  # standard output holds one line, and standard error only what went wrong

    folder = arguments.checkpoint
    model, codec = load(folder, arguments.random, arguments.layers, getattr(torch, arguments.dtype))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    generation = json.loads((folder / "generation_config.json").read_text())
    vocabulary = model.config.talker_config.vocab_size
    talker = Clock(
        model.talker, suppress_tokens=list(range(vocabulary - 1024, vocabulary)), max_new_tokens=arguments.frames + 1
    )
    text = (TEXT * (arguments.characters // len(TEXT) + 1))[: arguments.characters]
    ids = tokenizer.encode(f"<|im_start|>assistant\n{text}<|im_end|>\n<|im_start|>assistant\n").ids
    speaker = next(iter(model.config.talker_config.spk_id))
    rate = codec.config.output_sample_rate

    def answer() -> dict[str, float]:
        def codes():
            made, _ = model.generate(
                input_ids=[torch.tensor([ids])],
                instruct_ids=[None],
                languages=["Auto"],
                speakers=[speaker],
                non_streaming_mode=False,
                **generation,
            )
            return made[0]

        talked, frames = timed(codes)
        decoded, sound = timed(lambda: codec.decode(frames[None]).audio_values[0])
        seconds = sound.numel() / rate
        return {
            "frame_ms": talker.per_step_ms(),
            "codec_ms_per_second": 1e3 * decoded / seconds,
            "answer_seconds": talked + decoded,
            "audio_seconds": seconds,
            "frames": len(frames),
        }

    print(json.dumps({"threads": arguments.threads, "dtype": arguments.dtype} | medians(arguments.repeats, answer)))


if __name__ == "__main__":
    main()
