"""Times the reference implementation on one spoken question: `python bench_reference.py CHECKPOINT WAV`.

Prints one line of JSON. All times are of the reference's own `generate` in f32, greedy, after a warm-up; only the
moments at which its sub-models are done are noted. It does not stream: the whole answer is there when `generate`
returns.
"""

import argparse
import json
import statistics
import time
import warnings
from math import gcd
from pathlib import Path

import soundfile
import torch
import transformers
from scipy.signal import resample_poly
from tokenizers import Tokenizer
from transformers import Qwen3OmniMoeForConditionalGeneration, WhisperFeatureExtractor

import runs
import signals
from clock import Clock
from tokens import Conversation

OUTPUT_RATE = 24000  # of the whole family; no configuration names it


def read_question(path: Path):
    """Mono f32 at the model's rate, resampled if need be."""
    audio, rate = soundfile.read(path, dtype="float32", always_2d=True)
    audio = audio.mean(axis=1)
    if rate != signals.SAMPLE_RATE:
        common = gcd(rate, signals.SAMPLE_RATE)
        audio = resample_poly(audio, signals.SAMPLE_RATE // common, rate // common).astype("float32")
    return audio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("wav", type=Path)
    parser.add_argument("--threads", type=int, default=2, help="torch threads (default: 2)")
    parser.add_argument("--repeats", type=int, default=5, help="timed answers, after one untimed (default: 5)")
    parser.add_argument("--speaker", default=None, help="default: the first of the checkpoint")
    parser.add_argument("--max-tokens", type=int, default=100)
    parser.add_argument("--max-frames", type=int, default=250)
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.filterwarnings("ignore")  # standard output holds one line, and standard error only what went wrong

    model = Qwen3OmniMoeForConditionalGeneration.from_pretrained(arguments.checkpoint, dtype=torch.float32).eval()
    tokenizer = Tokenizer.from_file(str(arguments.checkpoint / "tokenizer.json"))
    extractor = WhisperFeatureExtractor.from_pretrained(arguments.checkpoint)
    speaker = arguments.speaker or next(iter(model.config.talker_config.speaker_id))
    question = read_question(arguments.wav)
    thinker, talker = Clock(model.thinker), Clock(model.talker)
    decoded = []
    model.code2wav.register_forward_pre_hook(lambda _module, inputs: decoded.append(inputs[0]))

    def answer():
        mel = torch.as_tensor(signals.mel_reference(extractor, question))
        ids = torch.tensor([Conversation(tokenizer, system=None).ask(runs.audio_tokens(mel))])
        tokens, wave = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            **runs.batch_mels([mel]),
            speaker=speaker,
            thinker_eos_token_id=model.config.im_end_token_id,
            thinker_max_new_tokens=arguments.max_tokens,
            thinker_do_sample=False,
            talker_max_new_tokens=arguments.max_frames,
            talker_do_sample=False,
            talker_repetition_penalty=1.0,
        )
        return tokens[0, ids.shape[1] :].tolist(), wave.flatten()

    answer()
    whole, per_token, per_frame, per_second = [], [], [], []
    for _ in range(arguments.repeats):
        decoded.clear()
        begin = time.perf_counter()
        tokens, wave = answer()
        whole.append(time.perf_counter() - begin)
        per_token.append(thinker.per_step_ms())
        per_frame.append(talker.per_step_ms())
        codes = torch.cat(decoded, dim=-1)
        begin = time.perf_counter()
        sound = model.code2wav(codes)
        per_second.append(1e3 * (time.perf_counter() - begin) / (sound.numel() / OUTPUT_RATE))

    print(
        json.dumps(
            {
                "versions": {"transformers": transformers.__version__, "torch": torch.__version__},
                "threads": arguments.threads,
                "repeats": arguments.repeats,
                "thinker_ms_per_token": statistics.median(per_token),
                "talker_ms_per_frame": statistics.median(per_frame),
                "code2wav_ms_per_second": statistics.median(per_second),
                "answer_seconds": statistics.median(whole),
                "audio_seconds": wave.numel() / OUTPUT_RATE,
                "question_seconds": len(question) / signals.SAMPLE_RATE,
                "tokens": len(tokens),
                "frames": codes.shape[-1],
                "text": tokenizer.decode(tokens, skip_special_tokens=True),
            }
        )
    )


if __name__ == "__main__":
    main()
