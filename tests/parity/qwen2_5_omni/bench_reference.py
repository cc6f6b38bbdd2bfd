"""Times the reference of Qwen2.5-Omni: `python bench_reference.py CHECKPOINT [--random]`.

Prints one line of JSON. All times are of the reference's own `generate` after one that is not counted; ends of text and
speech are never chosen, so that every answer is as long. It does not stream: all sound is there at the end.
"""

import argparse
import json
import sys
import time
import warnings
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))

import torch
import transformers
from tokenizers import Tokenizer
from transformers import Qwen2_5OmniConfig, Qwen2_5OmniForConditionalGeneration, WhisperFeatureExtractor

import runs
import signals
from clock import Clock, medians, read_config, timed
from tokens import special

OUTPUT_RATE = 24_000  # of the published family; no configuration names it
DRAWN_FRAMES = 200  # mel frames of a voice that is drawn


def load(folder: Path, random: bool, layers: int | None, dtype):
    """The models of a checkpoint, or of its dimensions with random weights and a voice of random numbers."""
    if not random:
        return Qwen2_5OmniForConditionalGeneration.from_pretrained(folder, dtype=dtype).eval()
    config = Qwen2_5OmniConfig(**read_config(folder, layers))
    model = Qwen2_5OmniForConditionalGeneration._from_config(config, dtype=dtype).eval()
    model.token2wav.float()
    dit = config.token2wav_config.dit_config
    voice = {
        "cond": torch.randn(1, dit.enc_emb_dim),
        "ref_mel": torch.randn(1, DRAWN_FRAMES, dit.mel_dim),
        "bos_token": 0,
    }
    model.speaker_map = {"drawn": voice}
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--random", action="store_true", help="draw the weights: the folder has none")
    parser.add_argument("--layers", type=int, help="most layers of each stack (default: all)")
    parser.add_argument("--threads", type=int, default=2, help="torch threads (default: 2)")
    parser.add_argument("--repeats", type=int, default=3, help="timed answers, after one untimed (default: 3)")
    parser.add_argument("--heard", type=float, default=2.0, help="seconds of the question (default: 2)")
    parser.add_argument("--tokens", type=int, default=16, help="of the answer's text (default: 16)")
    parser.add_argument("--codes", type=int, default=48, help="of the answer's speech (default: 48)")
    parser.add_argument("--dtype", default="float32", help="of all but token2wav, whose is float32 (default: float32)")
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    torch.set_grad_enabled(False)
    torch.manual_seed(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.filterwarnings("ignore")  # standard output holds one line, and standard error only what went wrong

    folder = arguments.checkpoint
    dtype = getattr(torch, arguments.dtype)
    model = load(folder, arguments.random, arguments.layers, dtype)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    extractor = WhisperFeatureExtractor.from_pretrained(folder)
    question = signals.speech(int(arguments.heard * signals.SAMPLE_RATE), seed=1)
    mel = torch.as_tensor(signals.mel_reference(extractor, question))
    prompt = runs.Talk(tokenizer, "You sing.").ask(runs.audio_tokens(model, mel))
    ids = torch.tensor([prompt])
    mels = runs.batch_mels([mel])
    mels["input_features"] = mels["input_features"].to(dtype)
    codes = model.config.token2wav_config.dit_config.num_embeds - 1
    talker_ids = model.config.talker_config.vocab_size
    stop = special(tokenizer, "<|im_end|>")
    thinker = Clock(model.thinker, suppress_tokens=[stop])
    talker = Clock(model.talker, suppress_tokens=list(range(codes, talker_ids)))
    speaker = next(iter(model.speaker_map))
    spent = []
    plain = model.token2wav.forward

    def token2wav(*args, **kwargs):
        begin = time.perf_counter()
        sound = plain(*args, **kwargs)
        spent.append(time.perf_counter() - begin)
        return sound

    model.token2wav.forward = token2wav

    def answer() -> dict[str, float]:
        def generate():
            return model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                **mels,
                speaker=speaker,
                thinker_eos_token_id=stop,
                thinker_do_sample=False,
                thinker_max_new_tokens=arguments.tokens,
                talker_max_new_tokens=arguments.codes,
                talker_eos_token_id=[talker_ids - 1],
            )

        with runs.masked(model.talker):
            seconds, (_, sound) = timed(generate)
        length = sound.numel() / OUTPUT_RATE
        return {
            "token_ms": thinker.per_step_ms(),
            "code_ms": talker.per_step_ms(),
            "token2wav_ms_per_second": 1e3 * spent[-1] / length,
            "answer_seconds": seconds,
            "audio_seconds": length,
            "codes": talker.steps() + 1,
        }

    print(json.dumps({"threads": arguments.threads, "dtype": arguments.dtype} | medians(arguments.repeats, answer)))


if __name__ == "__main__":
    main()
