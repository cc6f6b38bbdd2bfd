"""Makes the fixture of Whisper with transformers: `python make_fixtures.py`.

A small random checkpoint in the files of a published one, with the encoder's rows, the decoder's logits, greedy ids
with and without timestamps, the language found, and the times of tokens by cross attention. See ../README.md for the
versions that this needs.
"""

import json
import sys
import zlib
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from tokenizers import AddedToken
from transformers import GenerationConfig, WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration
from transformers.models.whisper.generation_whisper import _dynamic_time_warping, _median_filter

HOME = Path(__file__).resolve().parent
sys.path.insert(0, str(HOME.parent))
import signals  # noqa: E402
import tokens  # noqa: E402
import weights  # noqa: E402

FOLDER = HOME.parent / "fixtures" / "whisper"
TEXT = 320
# Encoded rows of the longest window, and of the window that holds the sound.
ROWS, SERVED = 150, 75
BINS = 16
SAMPLES = 20_800
LANGUAGES = ("en", "de", "ja")
SPECIAL = [
    "<|endoftext|>",
    "<|startoftranscript|>",
    *(f"<|{code}|>" for code in LANGUAGES),
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
]
VOCABULARY = TEXT + len(SPECIAL) + ROWS + 1
MOST = 20
# Position after which an answer ends soon.
LATE = 10
# Lead of each greedy choice, in logits.
MARGIN = 5e-3
WIDTH = 32
CONFIG = {
    "vocab_size": VOCABULARY,
    "num_mel_bins": BINS,
    "d_model": WIDTH,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 56,
    "decoder_layers": 3,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 72,
    "max_target_positions": 96,
    "attn_implementation": "eager",
}
ALIGNMENT = [[1, 0], [1, 3], [2, 2]]


def build_tokenizer():
    """Text first, then special tokens, then timestamps, as in the published vocabularies."""
    tokenizer = tokens.build(TEXT, [])
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.add_tokens([AddedToken(f"<|{row * 0.02:.2f}|>", normalized=False) for row in range(ROWS + 1)])
    assert tokenizer.get_vocab_size() == VOCABULARY
    return tokenizer


def suppressed(tokenizer) -> list[int]:
    """Text without words: what is left begins a word, or has several letters."""
    texts = ((i, tokenizer.decode([i])) for i in range(TEXT))
    short = (" a", " t", "s", "e", ".")
    said = [i for i, text in texts if text in short or (text.isascii() and len(text.strip()) > 1)]
    special = [tokens.special(tokenizer, name) for name in SPECIAL[1:-1]]
    return [i for i in range(TEXT) if i not in said] + special


@torch.no_grad()
def draw(model, seed: int, end: int) -> None:
    """Draws every parameter, in the order of its name, at scales at which each one matters. The end grows likelier with
    the position, so that answers end."""
    rng = torch.Generator().manual_seed(seed)
    for name, p in sorted(model.named_parameters()):
        if name.endswith("bias"):
            p.copy_(0.3 * torch.randn(p.shape, generator=rng))
        elif name == "model.decoder.layer_norm.weight":
            # Clear choices.
            p.copy_(2.5 + torch.rand(p.shape, generator=rng))
        elif p.dim() == 1:
            p.copy_(0.6 + 0.8 * torch.rand(p.shape, generator=rng))
        elif "embed_tokens" in name:
            p.copy_(0.6 * torch.randn(p.shape, generator=rng))
        elif "embed_positions" in name:
            p.copy_(1.5 * torch.randn(p.shape, generator=rng))
        else:
            p.copy_(2.2 * p[0].numel() ** -0.5 * torch.randn(p.shape, generator=rng))
    direction = torch.randn(WIDTH, generator=rng)
    direction /= direction.norm()
    decoder = model.model.decoder
    decoder.embed_positions.weight += (torch.arange(96.0) - LATE).clamp(min=0)[:, None] * 6.0 * direction
    # Words are likelier than timestamps.
    decoder.embed_tokens.weight[-ROWS - 1 :] *= 0.5
    decoder.embed_tokens.weight[end] = 4.0 * direction


def served(model, rows: int):
    """The same model for a window of `rows` rows."""
    config = WhisperConfig.from_dict({**model.config.to_dict(), "max_source_positions": rows})
    config._attn_implementation = "eager"
    other = WhisperForConditionalGeneration(config).eval()
    state = dict(model.state_dict())
    key = "model.encoder.embed_positions.weight"
    state[key] = state[key][:rows]
    other.load_state_dict(state)
    other.generation_config = model.generation_config
    return other


@torch.no_grad()
def token_times(model, features, ids: list[int], prompt: int) -> list[int]:
    """Rows at which the tokens after `prompt`, and the end, begin, as the reference finds them."""
    out = model(features, decoder_input_ids=torch.tensor([ids]), output_attentions=True)
    heads = torch.stack([out.cross_attentions[layer][0, head] for layer, head in ALIGNMENT])
    std, mean = torch.std_mean(heads, dim=-2, keepdim=True, unbiased=False)
    matrix = _median_filter((heads - mean) / std, 7).mean(dim=0)[prompt - 1 : -1]
    text, time = _dynamic_time_warping(-matrix.double().numpy())
    return [int(time[list(text).index(i)]) for i in range(matrix.shape[0])]


@torch.no_grad()
def run(model, extractor, audio, rows: int, tokenizer) -> dict | None:
    """Everything of one window; `None` if an answer does not end, or a choice is narrow."""
    samples = 320 * rows
    features = extractor(audio, sampling_rate=16_000, padding="max_length", max_length=samples, return_tensors="pt")
    features = features["input_features"]
    start, end = (tokens.special(tokenizer, name) for name in ("<|startoftranscript|>", "<|endoftext|>"))
    encoded = model.model.encoder(features).last_hidden_state[0]
    found = {"mel": features[0].T, "encoded": encoded}
    language = model.detect_language(input_features=features)
    found["language"] = int(language[0])
    first = model(features, decoder_input_ids=torch.tensor([[start]])).logits[0, 0]
    found["no_speech"] = float(first.softmax(0)[tokens.special(tokenizer, "<|nospeech|>")])
    for name, timed in (("plain", False), ("timed", True)):
        greedy = {"max_new_tokens": MOST, "do_sample": False, "num_beams": 1, "task": "transcribe"}
        if timed:
            out, scores = model.generate(features, return_timestamps=True, **greedy), None
        else:
            whole = model.generate(features, output_scores=True, return_dict_in_generate=True, **greedy)
            out, scores = whole.sequences, torch.stack(whole.scores)[:, 0]
        ids = [int(i) for i in out[0]]
        # The prompt may be left out of what is returned.
        prompt = [start, found["language"], tokens.special(tokenizer, "<|transcribe|>")]
        prompt += [] if timed else [tokens.special(tokenizer, "<|notimestamps|>")]
        answer = ids[len(prompt) :] if ids[:1] == [start] else ids
        # The end is left out between timestamps.
        answer = answer[: answer.index(end)] if end in answer else answer
        if len(answer) >= MOST:
            return None
        if scores is not None:
            scores = scores[: len(answer) + 1]
            best = scores.topk(2).values
            text = tokenizer.decode(answer).encode()
            # Texts that repeat themselves are not trusted.
            if len(text) > 1.8 * len(zlib.compress(text)) or (best[:, 0] - best[:, 1]).min() < MARGIN:
                return None
        found[name] = answer
        if not timed and scores is not None:
            found["average"] = float(scores.log_softmax(-1).max(-1).values.mean())
            whole = [*prompt, *answer, end]
            found["prompt"] = prompt
            found["logits"] = model(features, decoder_input_ids=torch.tensor([whole])).logits[0]
            found["times"] = token_times(model, features, whole, len(prompt))
    return found


def main() -> None:
    """Makes the fixture."""
    tokenizer = build_tokenizer()
    extractor = WhisperFeatureExtractor(feature_size=BINS, chunk_length=3)
    audio = signals.speech(SAMPLES, 5)
    special = {name: tokens.special(tokenizer, name) for name in SPECIAL}
    end = special["<|endoftext|>"]
    ids = {"pad_token_id": end, "bos_token_id": end, "eos_token_id": end}
    config = WhisperConfig(
        **CONFIG, **ids, max_source_positions=ROWS, decoder_start_token_id=special["<|startoftranscript|>"]
    )
    model = WhisperForConditionalGeneration(config).eval()
    model.generation_config = GenerationConfig(
        decoder_start_token_id=special["<|startoftranscript|>"],
        eos_token_id=special["<|endoftext|>"],
        pad_token_id=special["<|endoftext|>"],
        no_timestamps_token_id=special["<|notimestamps|>"],
        prev_sot_token_id=special["<|startofprev|>"],
        is_multilingual=True,
        lang_to_id={f"<|{code}|>": special[f"<|{code}|>"] for code in LANGUAGES},
        task_to_id={"transcribe": special["<|transcribe|>"], "translate": special["<|translate|>"]},
        suppress_tokens=suppressed(tokenizer),
        begin_suppress_tokens=[special["<|endoftext|>"], tokenizer.encode(" a").ids[0]],
        alignment_heads=ALIGNMENT,
        max_initial_timestamp_index=20,
    )
    for seed in range(400):
        draw(model, seed, special["<|endoftext|>"])
        weights.round_to(model, torch.bfloat16)
        runs = {}
        for name, rows in (("longest", ROWS), ("served", SERVED)):
            runs[name] = run(served(model, rows), extractor, audio, rows, tokenizer)
            if runs[name] is None:
                break
        else:
            # Texts that are trusted, so that hypotheses grow.
            if min(found["average"] for found in runs.values()) > -0.9:
                break
    else:
        raise SystemExit("no seed gives answers that end")
    tensors = {"audio": torch.from_numpy(audio)}
    facts: dict[str, dict[str, object]] = {}
    for name, found in runs.items():
        for tensor in ("mel", "encoded", "logits"):
            if tensor != "mel" or name == "served":
                tensors[f"{name}.{tensor}"] = found[tensor].float().contiguous()
        for kind in ("prompt", "plain", "timed", "times"):
            tensors[f"{name}.{kind}"] = torch.tensor(found[kind], dtype=torch.int32)
        facts[name] = {key: found[key] for key in ("language", "no_speech", "average")}
        facts[name]["text"] = tokenizer.decode(found["plain"])
        print(name, facts[name])
    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    FOLDER.mkdir(parents=True, exist_ok=True)
    save_file(tensors, FOLDER / "expected.safetensors")
    (FOLDER / "expected.json").write_text(json.dumps({"versions": versions, "seed": seed, **facts}, indent=1) + "\n")
    checkpoint = FOLDER / "checkpoint"
    model.to(torch.bfloat16).save_pretrained(checkpoint)
    extractor.save_pretrained(checkpoint)
    tokenizer.save(str(checkpoint / "tokenizer.json"))


if __name__ == "__main__":
    main()
