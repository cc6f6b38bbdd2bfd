"""The configuration of the Qwen2.5-Omni fixture: small, and unlike the published one wherever that can be."""

from dataclasses import dataclass
from typing import Any

from transformers import Qwen2_5OmniConfig

from tokens import special

# The order fixes the ids: 0, 1, 2, ...
SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|AUDIO|>",
    "<|audio_bos|>",
    "<|audio_eos|>",
    "<|IMAGE|>",
    "<|VIDEO|>",
    "<|vision_bos|>",
    "<|vision_eos|>",
    "<tts_pad>",
    "<tts_bos_ada>",
    "<tts_bos_grace>",
    "<tts_eos>",
]


@dataclass(frozen=True)
class Fixture:
    """One checkpoint and the conversation held with it."""

    name: str = "omni25"
    seed: int = 1  # of the weights: the first one tried
    audio_seed: int = 7100
    vocab: int = 300
    codes: int = 64
    dtype: str = "bfloat16"
    system: str = "You sing."
    # 63 mel frames: a part of a block; 141: a block of 80 and an odd tail.
    turns: tuple[int, ...] = (10_100, 22_600)
    answers: tuple[int, ...] = (14, 17)  # tokens of each answer, its stop token included
    frames: tuple[int, ...] = (19, 24)  # codes of each answer
    # The talker may end by either of two ids: each turn ends by another.
    ends: tuple[str, ...] = ("end", "pad")
    speakers: tuple[str, ...] = ("grace", "ada")  # of each turn
    # High, because the padding's id, which ends the speech too, counts as said before: the prompt holds it.
    penalty: float = 1.3


FIXTURE = Fixture()

THINKER = dict(
    hidden_size=48,
    intermediate_size=80,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    rms_norm_eps=1e-6,
    rope_parameters={"rope_type": "default", "rope_theta": 20_000.0, "mrope_section": [2, 2, 2]},
)
AUDIO = dict(
    num_mel_bins=64,
    encoder_layers=2,
    encoder_attention_heads=2,
    encoder_ffn_dim=64,
    d_model=32,
    n_window=40,
)
TALKER = dict(
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=12,
    rope_parameters={"rope_type": "default", "rope_theta": 5_000.0, "mrope_section": [2, 2, 2]},
)
TOKEN2WAV: dict[str, Any] = dict(
    dit_config=dict(
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=2,
        head_dim=12,
        ff_mult=2,
        emb_dim=12,
        block_size=6,
        look_ahead_layers=[1],
        look_backward_layers=[0, 2],
        repeats=2,
        num_embeds=65,
        mel_dim=10,
        enc_emb_dim=8,
        enc_dim=6,
        enc_channels=[8, 8, 8, 8, 24],
        enc_kernel_sizes=[5, 3, 3, 3, 1],
        enc_dilations=[1, 2, 3, 4, 1],
        enc_attention_channels=4,
        enc_res2net_scale=2,
        enc_se_channels=4,
    ),
    bigvgan_config=dict(
        mel_dim=10,
        upsample_initial_channel=16,
        resblock_kernel_sizes=[3, 7, 11],
        resblock_dilation_sizes=[[1, 3, 5], [1, 3, 5], [1, 3, 5]],
        upsample_rates=[5, 3, 2],
        upsample_kernel_sizes=[11, 7, 4],
    ),
)
# Mel frames of each speaker's recording.
REFERENCE_FRAMES = {"ada": 9, "grace": 13}


def build(fixture: Fixture, tokenizer) -> Qwen2_5OmniConfig:
    """The configuration in the reference's own classes. Vision is as small as its classes allow: it is unused."""
    hidden = THINKER["hidden_size"]
    ids = {
        name: special(tokenizer, token)
        for name, token in {
            "audio_token_index": "<|AUDIO|>",
            "image_token_index": "<|IMAGE|>",
            "video_token_index": "<|VIDEO|>",
            "audio_start_token_id": "<|audio_bos|>",
            "audio_end_token_id": "<|audio_eos|>",
        }.items()
    }
    thinker = dict(
        text_config=dict(vocab_size=fixture.vocab, max_position_embeddings=2048, **THINKER),
        audio_config=dict(output_dim=hidden, **AUDIO),
        vision_config=dict(
            depth=1,
            hidden_size=8,
            intermediate_size=8,
            num_heads=1,
            out_hidden_size=hidden,
            patch_size=2,
            temporal_patch_size=1,
            spatial_merge_size=1,
            fullatt_block_indexes=[0],
        ),
        vision_start_token_id=special(tokenizer, "<|vision_bos|>"),
        vision_end_token_id=special(tokenizer, "<|vision_eos|>"),
        user_token_id=tokenizer.encode("user").ids[0],
        **ids,
    )
    codes = fixture.codes
    talker = dict(
        vocab_size=codes + 16,
        embedding_size=hidden,
        max_position_embeddings=2048,
        tts_text_start_token_id=special(tokenizer, "<tts_bos_ada>"),
        tts_text_end_token_id=special(tokenizer, "<tts_eos>"),
        tts_text_pad_token_id=special(tokenizer, "<tts_pad>"),
        tts_codec_pad_token_id=codes + 8,
        tts_codec_start_token_id=codes + 9,
        tts_codec_end_token_id=codes + 10,
        tts_codec_mask_token_id=codes + 12,
        vision_start_token_id=special(tokenizer, "<|vision_bos|>"),
        vision_end_token_id=special(tokenizer, "<|vision_eos|>"),
        **TALKER,
        **ids,
    )
    return Qwen2_5OmniConfig(thinker_config=thinker, talker_config=talker, token2wav_config=TOKEN2WAV)
