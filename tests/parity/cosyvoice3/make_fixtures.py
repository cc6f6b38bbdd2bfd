"""Makes the fixture of CosyVoice3 with the derivation in models.py: `python make_fixtures.py`.

A small random checkpoint in the files of a published folder, with two voices; the codes of texts, complete and
streamed in; mel frames of codes behind a recording and without one; samples of mel frames. See ../README.md for the
versions that this needs.
"""

import importlib.metadata
import json
import sys
from pathlib import Path

import models
import torch
from models import CODES, MEL, SPEAKER
from safetensors.torch import save_file
from utterances import MARK, RESPONSE, SEED, TEXT_IDS, say

HOME = Path(__file__).resolve().parent
sys.path.insert(0, str(HOME.parent))
import tokens  # noqa: E402

FOLDER = HOME.parent / "fixtures" / "cosyvoice3"
YAML = f"""# A small random checkpoint.
__set_seed1: !apply:random.seed [1986]

sample_rate: 24000
llm_input_size: 32
llm_output_size: 32
spk_embed_dim: {SPEAKER}
qwen_pretrain_path: ''
token_frame_rate: 25
token_mel_ratio: 2

chunk_size: 25  # streaming inference chunk size, in token
num_decoding_left_chunks: -1

llm: !new:cosyvoice.llm.llm.CosyVoice3LM
    llm_input_size: !ref <llm_input_size>
    llm_output_size: !ref <llm_output_size>
    speech_token_size: {CODES}
    mix_ratio: [5, 15]
    llm: !new:cosyvoice.llm.llm.Qwen2Encoder
        pretrain_path: !ref <qwen_pretrain_path>
    sampling: !name:cosyvoice.utils.common.ras_sampling
        top_p: 0.8
        top_k: 25
        win_size: 10
        tau_r: 0.1

flow: !new:cosyvoice.flow.flow.CausalMaskedDiffWithDiT
    input_size: {MEL}
    output_size: {MEL}
    spk_embed_dim: !ref <spk_embed_dim>
    output_type: 'mel'
    vocab_size: {CODES}
    input_frame_rate: !ref <token_frame_rate>
    token_mel_ratio: !ref <token_mel_ratio>
    pre_lookahead_len: 3
    pre_lookahead_layer: !new:cosyvoice.transformer.upsample_encoder.PreLookaheadLayer
        in_channels: {MEL}
        channels: {models.CHANNELS}
        pre_lookahead_len: 3
    decoder: !new:cosyvoice.flow.flow_matching.CausalConditionalCFM
        in_channels: 240
        n_spks: 1
        spk_emb_dim: {MEL}
        cfm_params: !new:omegaconf.DictConfig
            content:
                sigma_min: 1e-06
                solver: 'euler'
                t_scheduler: 'cosine'
                inference_cfg_rate: 0.7
        estimator: !new:cosyvoice.flow.DiT.dit.DiT
            dim: {models.DIT["dim"]}
            depth: {models.DIT["depth"]}
            heads: {models.DIT["heads"]}
            dim_head: {models.DIT["dim_head"]}
            ff_mult: {models.DIT["ff_mult"]}
            mel_dim: {MEL}
            mu_dim: {MEL}
            spk_dim: {MEL}
            out_channels: {MEL}
            static_chunk_size: !ref <chunk_size> * <token_mel_ratio>
            num_decoding_left_chunks: !ref <num_decoding_left_chunks>

hift: !new:cosyvoice.hifigan.generator.CausalHiFTGenerator
    in_channels: {MEL}
    base_channels: {models.HIFT["base_channels"]}
    nb_harmonics: 8
    sampling_rate: !ref <sample_rate>
    nsf_alpha: 0.1
    nsf_sigma: 0.003
    nsf_voiced_threshold: 10
    upsample_rates: [8, 5, 3]
    upsample_kernel_sizes: [16, 11, 7]
    istft_params:
        n_fft: 16
        hop_len: 4
    resblock_kernel_sizes: [3, 7, 11]
    resblock_dilation_sizes: [[1, 3, 5], [1, 3, 5], [1, 3, 5]]
    source_resblock_kernel_sizes: [7, 7, 11]
    source_resblock_dilation_sizes: [[1, 3, 5], [1, 3, 5], [1, 3, 5]]
    lrelu_slope: 0.1
    audio_limit: 0.99
    conv_pre_look_right: 4
    f0_predictor: !new:cosyvoice.hifigan.f0_predictor.CausalConvRNNF0Predictor
        num_class: 1
        in_channels: {MEL}
        cond_channels: {models.HIFT["pitch_channels"]}

feat_extractor: !name:matcha.utils.audio.mel_spectrogram
    n_fft: 1920
    num_mels: {MEL}
    sampling_rate: !ref <sample_rate>
    hop_size: 480
    win_size: 1920
    fmin: 0
    fmax: null
    center: False

data_pipeline: [
    !ref <sample_rate>,
    !ref <chunk_size>
]
"""


@torch.no_grad()
def main() -> None:
    """Makes the fixture."""
    torch.set_num_threads(1)
    tokenizer = tokens.build(TEXT_IDS)
    language_model = models.draw(models.LanguageModel(), 1)
    flow, hift = models.draw(models.Flow(), 2), models.draw(models.Hift(), 3)
    # A voice from 0 to 300 Hz, and sound that is neither silent nor clipped.
    hift.f0_predictor.classifier.weight.mul_(600)
    hift.f0_predictor.classifier.bias.fill_(0)
    hift.conv_post.bias[:9].sub_(1)
    hift.conv_post.parametrizations.weight.original0.mul_(0.5)
    hift.m_source.l_linear.weight.mul_(3)
    for p in (*flow.parameters(), *hift.parameters()):
        p.copy_(p.to(torch.bfloat16).float())
    rng = torch.Generator().manual_seed(4)

    def integers(most: int, count: int) -> list[int]:
        return torch.randint(0, most, (count,), generator=rng).tolist()

    speakers = [torch.randn(SPEAKER, generator=rng) for _ in range(2)]
    recorded = integers(CODES, 60)
    mel = torch.randn(120, MEL, generator=rng)
    transcript = [*integers(250, 4), MARK, *integers(250, 3)]
    home = FOLDER / "checkpoint"
    (home / "CosyVoice-BlankEN").mkdir(parents=True, exist_ok=True)
    (home / "cosyvoice3.yaml").write_text(YAML)
    (home / "CosyVoice-BlankEN" / "config.json").write_text(
        json.dumps({"architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu", **models.QWEN2}, indent=2) + "\n"
    )
    tokenizer.save(str(home / "CosyVoice-BlankEN" / "tokenizer.json"))
    stored = {name: p.clone() for name, p in language_model.state_dict().items() if "lm_head" not in name}
    torch.save(stored, home / "llm.pt")
    torch.save({name: p.to(torch.bfloat16) for name, p in flow.state_dict().items()}, home / "flow.pt")
    torch.save({f"generator.{name}": p.to(torch.bfloat16) for name, p in hift.state_dict().items()}, home / "hift.pt")
    voices = {
        "recorded": {
            "prompt_text": torch.tensor([transcript], dtype=torch.int32),
            "prompt_text_len": torch.tensor([len(transcript)], dtype=torch.int32),
            "llm_prompt_speech_token": torch.tensor([recorded], dtype=torch.int32),
            "flow_prompt_speech_token": torch.tensor([recorded], dtype=torch.int32),
            "prompt_speech_feat": mel[None],
            "llm_embedding": speakers[0][None],
            "flow_embedding": speakers[0][None],
        },
        "vector": {"embedding": speakers[1][None]},
    }
    torch.save(voices, home / "spk2info.pt")

    said = {}
    default = [*tokenizer.encode("You are a helpful assistant.", add_special_tokens=False).ids, MARK]
    instructions = [*tokenizer.encode("be kind", add_special_tokens=False).ids, MARK]
    for name, header, count, codes, streamed in (
        ("whole", transcript, 3, recorded, False),
        ("streamed", transcript, 13, recorded, True),
        ("vector", default, 2, [], False),
        ("instructed", instructions, 11, [], True),
    ):
        text = integers(250, count)
        said[name] = {"text": text, **say(language_model, header, text, codes, streamed)}
    tensors = {}
    for name, run in said.items():
        for key in ("text", "heard"):
            tensors[f"{name}.{key}"] = torch.tensor(run[key], dtype=torch.int32)
        for kind in ("text", "speech"):
            numbers = [number if of == kind else -1 for of, number in run["rows"]]
            tensors[f"{name}.{kind}_rows"] = torch.tensor(numbers, dtype=torch.int32)
        tensors[f"{name}.logits"] = language_model.logits(run["rows"])
    whole = recorded[10:]
    for name, codes, before, speaker, left in (
        ("behind", integers(CODES, 63), 50, speakers[0], 100),
        ("alone", integers(CODES, 190), 0, speakers[1], 4),
        ("short", integers(CODES, 7), 0, speakers[1], 100),
    ):
        recording = mel[20:] if before else mel[:0]
        frames = flow(whole[:before] + codes, recording, speaker, left)[2 * before :]
        tensors[f"{name}.codes"] = torch.tensor(codes, dtype=torch.int32)
        tensors[f"{name}.mel"] = frames
    frames = torch.randn(45, MEL, generator=rng)
    tensors["sound.mel"] = frames
    tensors["sound.pitch"] = hift.pitch(frames.T)
    tensors["sound.samples"] = hift(frames, SEED, RESPONSE)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, FOLDER / "expected.safetensors")
    facts = {
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "transformers", "tokenizers")},
        "oracle": "models.py, a derivation",
        "runs": {name: {"heard": len(run["heard"]), "said": len(run["said"])} for name, run in said.items()},
        "pitch": [round(float(number), 1) for number in tensors["sound.pitch"]],
        "std": {name: round(float(tensor.float().std()), 4) for name, tensor in tensors.items()},
    }
    (FOLDER / "expected.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
