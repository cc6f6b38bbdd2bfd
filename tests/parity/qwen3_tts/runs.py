"""Runs the reference's own `generate` and records the tensors between its parts."""

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from configs import Fixture, Run
from reference import mel_spectrogram

SAMPLE_RATE = 24_000

# Keyword arguments and result of each call.
Log = list[tuple[dict[str, Any], Any]]


@dataclass
class Made:
    """Tensors of one run. Rows are [steps, width], without a batch axis."""

    text_ids: list[int]
    instruct_ids: list[int]
    prompt: torch.Tensor
    trailing: torch.Tensor
    logits: torch.Tensor
    scores: torch.Tensor  # after the processors
    hidden: torch.Tensor
    first: list[int]  # codebook 0 of each step, the end of speech included
    predictor_logits: torch.Tensor  # [frames, groups - 1, codes]
    codes: torch.Tensor  # [groups, frames]
    voice: "Voice | None" = None


@dataclass
class Voice:
    """Tensors of a recording."""

    audio: torch.Tensor  # [samples]
    mel: torch.Tensor  # [frames, bins]
    speaker: torch.Tensor  # [hidden]
    encoded: torch.Tensor  # [frames, hidden], before the quantizer
    codes: torch.Tensor  # [frames, groups]
    text_ids: list[int]
    gap: float  # the smallest lead of the nearest entry over the next one


@contextmanager
def recorded(module, log: Log, **overrides):
    """Logs (keyword arguments, result) of each `generate` call of a sub-model, asking it for logits and scores."""
    plain = module.generate

    def generate(*args, **kwargs):
        kwargs |= overrides
        result = plain(*args, output_logits=True, output_scores=True, **kwargs)
        log.append((kwargs, result))
        return result

    module.generate = generate
    try:
        yield
    finally:
        del module.generate


def _steps(rows) -> torch.Tensor:
    return torch.cat(list(rows)).float()


def encode(tokenizer, text: str) -> torch.Tensor:
    return torch.tensor([tokenizer.encode(text).ids])


def recording(samples: int) -> np.ndarray:
    """Two glides under a slow envelope, and some noise, on the 16-bit grid."""
    rng, at = np.random.default_rng(samples), np.arange(samples) / SAMPLE_RATE
    sound = 0.4 * np.sin(2 * np.pi * (150 + 900 * at) * at) + 0.2 * np.sin(2 * np.pi * (1900 - 800 * at) * at)
    sound = sound * (0.6 + 0.4 * np.sin(2 * np.pi * 9 * at)) + rng.normal(0, 0.02, samples)
    return (np.round(sound * 32767) / 32768).astype(np.float32)


@torch.no_grad()
def listen(model, codec, tokenizer, run: Run) -> Voice:
    """Runs the reference's `create_voice_clone_prompt` on a recording."""
    assert run.recording is not None, "a run without a recording clones no voice"
    audio = recording(run.recording)
    values = torch.from_numpy(audio)[None]
    distances, encoded = [], []
    quantizer = codec.encoder.quantizer
    books = [quantizer.semantic_residual_vector_quantizer, quantizer.acoustic_residual_vector_quantizer]
    used = [layer.codebook for book in books for layer in book.layers][: codec.encoder_valid_num_quantizers]
    plain = type(used[0]).quantize

    def quantize(self, rows):
        if any(self is book for book in used):
            distances.append(torch.cdist(rows, self.embed))
        return plain(self, rows)

    hook = codec.encoder.downsample.register_forward_hook(lambda _module, _inputs, out: encoded.append(out[0].T))
    type(used[0]).quantize = quantize
    codes = codec.encode(values, torch.ones_like(values, dtype=torch.long)).audio_codes[0]
    type(used[0]).quantize = plain
    hook.remove()
    near = torch.cat(distances).topk(2, dim=-1, largest=False).values
    mel = mel_spectrogram(
        values, n_fft=1024, num_mels=128, sampling_rate=SAMPLE_RATE, hop_size=256, win_size=1024, fmin=0, fmax=12000
    )[0].T
    return Voice(
        audio=values[0],
        mel=mel,
        speaker=model.extract_speaker_embedding(audio, SAMPLE_RATE),
        encoded=encoded[0],
        codes=codes,
        text_ids=tokenizer.encode(run.reference).ids if run.reference else [],
        gap=(near[:, 1] - near[:, 0]).min().item(),
    )


@torch.no_grad()
def ask(model, codec, fixture: Fixture, tokenizer, run: Run, endless: int | None = None) -> Made:
    """One greedy call. `endless` says after how many steps an answer that may not end is cut."""
    assert (
        tokenizer.encode(run.text).ids
        == encode(tokenizer, f"<|im_start|>assistant\n{run.text}<|im_end|>\n<|im_start|>assistant\n")[0, 3:-5].tolist()
    )
    instruct = f"<|im_start|>user\n{run.instruct}<|im_end|>\n"
    overrides = {}
    if endless is not None:
        vocab = model.config.talker_config.vocab_size
        overrides = dict(max_new_tokens=endless, suppress_tokens=list(range(vocab - 1024, vocab)))
    voice, cloned = None, {}
    if run.recording is not None:
        voice = listen(model, codec, tokenizer, run)
        in_context = run.reference is not None
        reference = f"<|im_start|>assistant\n{run.reference}<|im_end|>\n"
        cloned = dict(
            ref_ids=[encode(tokenizer, reference) if in_context else None],
            voice_clone_prompt=dict(
                ref_code=[voice.codes if in_context else None],
                ref_spk_embedding=[voice.speaker],
                x_vector_only_mode=[not in_context],
                icl_mode=[in_context],
            ),
        )
    talker_log: Log = []
    predictor_log: Log = []
    with recorded(model.talker, talker_log, **overrides), recorded(model.talker.code_predictor, predictor_log):
        codes, _ = model.generate(
            input_ids=[encode(tokenizer, f"<|im_start|>assistant\n{run.text}<|im_end|>\n<|im_start|>assistant\n")],
            instruct_ids=[encode(tokenizer, instruct) if run.instruct else None],
            languages=[run.language],
            speakers=[run.speaker] if run.speaker else None,
            non_streaming_mode=run.whole,
            do_sample=False,
            subtalker_dosample=False,
            repetition_penalty=fixture.penalty,
            max_new_tokens=60,
            **cloned,
        )
    inputs, talker = talker_log[0]
    return Made(
        text_ids=tokenizer.encode(run.text).ids,
        instruct_ids=tokenizer.encode(run.instruct).ids if run.instruct else [],
        prompt=inputs["inputs_embeds"][0],
        trailing=inputs["trailing_text_hidden"][0],
        logits=_steps(talker.logits),
        scores=_steps(talker.scores),
        hidden=_steps(state[0][-1][0, -1:] for state in talker.hidden_states),
        first=talker.sequences[0].tolist(),
        predictor_logits=torch.stack([_steps(result.logits) for _, result in predictor_log]),
        codes=codes[0].T,
        voice=voice,
    )


@torch.no_grad()
def decode(codec, made: Made) -> torch.Tensor:
    """[samples]: one decode of all frames. Those of a recording stand before them, and their samples are cut off."""
    codes = made.codes.T
    if made.voice is None or not made.voice.text_ids:
        return codec.decode(codes[None]).audio_values[0]
    reference = made.voice.codes
    samples = codec.decode(torch.cat([reference, codes])[None]).audio_values[0]
    return samples[len(reference) * codec.get_decode_upsample_rate() :]


def stop(model) -> int:
    return model.config.talker_config.codec_eos_token_id
