"""The demo model's shape: a tiny member of the Qwen3-Omni family.

At most 12 million parameters, so that the bf16 checkpoint stays under 24 MB. Sizes that the reference implementation
hard-codes (13 audio tokens for 100 mel frames) leave `n_window` at 50.
"""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer
from transformers import Qwen3OmniMoeConfig
from transformers.models.qwen3_omni_moe.configuration_qwen3_omni_moe import Qwen3OmniMoeCode2WavConfig

HIDDEN = 256  # width of the thinker and the talker
CODEBOOKS = 6  # codes of a codec frame, see codes.py
CODES = 256  # entries of a codebook
SAMPLE_RATE = 24_000
FRAME = 1920  # samples of a codec frame: 80 ms
SPEAKER = "heart"

# Codes above the codebook are the talker's control tokens, in the order of the released checkpoints' configuration.
CODEC_PAD, CODEC_BOS, CODEC_EOS, CODEC_NOTHINK, CODEC_THINK_BOS, CODEC_THINK_EOS, CODEC_SPEAKER = range(
    CODES, CODES + 7
)
# The reference never samples the last 1,024 entries but the end of speech, so that many stand behind the codes.
TALKER_VOCABULARY = CODES + 1024

ROPE = {
    "rope_type": "default",
    "rope_theta": 10000.0,
    "mrope_section": [12, 10, 10],
    "mrope_interleaved": True,
    "interleaved": True,
}


def is_own(checkpoint: Path) -> bool:
    """True if a checkpoint speaks with this voice, so that its codes mean the same."""
    return SPEAKER in json.loads((checkpoint / "config.json").read_text())["talker_config"]["speaker_id"]


def code2wav() -> Qwen3OmniMoeCode2WavConfig:
    """The decoder's shape. 2 * 2 * 2 * 2 * 2 * 4 * 15 = 1920 samples a frame."""
    return Qwen3OmniMoeCode2WavConfig(
        codebook_size=CODES,
        num_quantizers=CODEBOOKS,
        hidden_size=192,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=3,
        head_dim=64,
        sliding_window=72,
        layer_scale_initial_scale=0.1,
        decoder_dim=96,
        upsampling_ratios=[2, 2, 2, 2],
        upsample_rates=[2, 4, 15],
        attn_implementation="sdpa",
    )


def model(tokenizer: Tokenizer) -> Qwen3OmniMoeConfig:
    """The whole model's configuration, with the token ids of this tokenizer."""
    token = tokenizer.token_to_id

    def word(text: str) -> int:
        (only,) = tokenizer.encode(text).ids
        return only

    text = dict(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=HIDDEN,
        intermediate_size=768,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=4096,
        mlp_only_layers=[0, 1, 2, 3],
        num_experts=2,
        num_experts_per_tok=1,
        moe_intermediate_size=64,
        rope_parameters=ROPE,
        tie_word_embeddings=False,
        use_sliding_window=False,
    )
    audio = dict(
        num_mel_bins=128,
        encoder_layers=3,
        encoder_attention_heads=4,
        encoder_ffn_dim=768,
        d_model=192,
        output_dim=HIDDEN,
        n_window=50,
        n_window_infer=100,
        downsample_hidden_size=48,
    )
    # The family has eyes; this member keeps the smallest that the reference implementation can build.
    vision = dict(
        depth=1,
        hidden_size=16,
        intermediate_size=16,
        num_heads=1,
        out_hidden_size=HIDDEN,
        deepstack_visual_indexes=[0],
        num_position_embeddings=4,
        patch_size=4,
        temporal_patch_size=1,
        spatial_merge_size=1,
    )
    media = dict(
        audio_token_id=token("<|audio_pad|>"),
        image_token_id=token("<|image_pad|>"),
        video_token_id=token("<|video_pad|>"),
        audio_start_token_id=token("<|audio_start|>"),
        vision_start_token_id=token("<|vision_start|>"),
        position_id_per_seconds=13,
    )
    thinker = dict(
        text_config=text,
        audio_config=audio,
        vision_config=vision,
        user_token_id=word("user"),
        audio_end_token_id=token("<|audio_end|>"),
        vision_end_token_id=token("<|vision_end|>"),
        **media,
    )
    talker = dict(
        text_config=dict(
            vocab_size=TALKER_VOCABULARY,
            hidden_size=HIDDEN,
            intermediate_size=256,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=64,
            max_position_embeddings=4096,
            num_experts=4,
            num_experts_per_tok=2,
            norm_topk_prob=True,
            moe_intermediate_size=32,
            shared_expert_intermediate_size=192,
            rope_parameters=ROPE,
        ),
        code_predictor_config=dict(
            vocab_size=CODES,
            hidden_size=HIDDEN,
            intermediate_size=192,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=64,
            num_code_groups=CODEBOOKS,
            max_position_embeddings=64,
        ),
        num_code_groups=CODEBOOKS,
        thinker_hidden_size=HIDDEN,
        accept_hidden_layer=2,
        spatial_merge_size=1,
        codec_pad_id=CODEC_PAD,
        codec_bos_id=CODEC_BOS,
        codec_eos_token_id=CODEC_EOS,
        codec_nothink_id=CODEC_NOTHINK,
        codec_think_bos_id=CODEC_THINK_BOS,
        codec_think_eos_id=CODEC_THINK_EOS,
        speaker_id={SPEAKER: CODEC_SPEAKER},
        **media,
    )
    return Qwen3OmniMoeConfig(
        thinker_config=thinker,
        talker_config=talker,
        code2wav_config=code2wav().to_dict(),
        im_start_token_id=token("<|im_start|>"),
        im_end_token_id=token("<|im_end|>"),
        tts_pad_token_id=token("<tts_pad>"),
        tts_bos_token_id=token("<tts_text_bos>"),
        tts_eos_token_id=token("<tts_text_eod>"),
        system_token_id=word("system"),
        user_token_id=word("user"),
        assistant_token_id=word("assistant"),
    )
