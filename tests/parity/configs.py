"""The fixtures' configurations. Sizes differ between them wherever they can, so that nothing passes by being fixed."""

from dataclasses import dataclass, field

from transformers import Qwen3OmniMoeConfig

from tokens import special

# The reference suppresses the last 1024 talker ids (all but the end of speech): real codes come before them.
SUPPRESSED = 1024


@dataclass(frozen=True)
class Fixture:
    """One checkpoint and the conversation held with it."""

    name: str
    seed: int  # of the weights: the first one tried; see search.py
    audio_seed: int
    vocab: int
    codebook: int
    speaker: str
    dtype: str
    turns: tuple[int, ...]  # samples at 16 kHz of each question
    answers: tuple[int, ...]  # tokens of each answer, its stop token included
    frames: tuple[int, ...]  # codec frames of each answer
    talker_repetition_penalty: float
    thinker: dict
    audio: dict
    talker: dict
    predictor: dict
    code2wav: dict
    accept_hidden_layer: int
    groups: int
    system: str | None = None
    max_shard_size: str = "1GB"
    limits: dict = field(default_factory=lambda: {"thinker_max_new_tokens": 60, "talker_max_new_tokens": 60})


def _rope(theta: float, section: list[int]) -> dict:
    return {
        "rope_type": "default",
        "rope_theta": theta,
        "mrope_section": section,
        "mrope_interleaved": True,
        "interleaved": True,
    }


def _plain_rope(theta: float) -> dict:
    return {"rope_type": "default", "rope_theta": theta}


DENSE = Fixture(
    name="dense",
    seed=57,
    audio_seed=5100,
    vocab=300,
    codebook=64,
    speaker="ada",
    dtype="bfloat16",
    turns=(10_100, 22_500),  # 63 frames: one chunk, not padded; 140 frames: a full one and a padded tail
    answers=(15, 19),
    frames=(19, 25),
    talker_repetition_penalty=1.0,
    accept_hidden_layer=1,
    groups=5,
    thinker=dict(
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        mlp_only_layers=[0, 1, 2],
        num_experts=2,
        num_experts_per_tok=1,
        moe_intermediate_size=16,
        rope_parameters=_rope(10_000.0, [4, 2, 2]),
    ),
    audio=dict(
        num_mel_bins=128,
        encoder_layers=2,
        encoder_attention_heads=2,
        encoder_ffn_dim=64,
        d_model=32,
        n_window_infer=100,
        downsample_hidden_size=8,
    ),
    talker=dict(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        moe_intermediate_size=24,
        shared_expert_intermediate_size=40,
        rope_parameters=_rope(5_000.0, [2, 1, 1]),
    ),
    predictor=dict(
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        rope_parameters=_plain_rope(10_000.0),
    ),
    code2wav=dict(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=8,
        sliding_window=72,
        upsample_rates=[5, 4, 3],
        upsampling_ratios=[2, 2],
        decoder_dim=32,
        rope_parameters=_plain_rope(10_000.0),
    ),
)

MOE = Fixture(
    name="moe",
    seed=124,
    audio_seed=6300,
    vocab=320,
    codebook=48,
    speaker="grace",
    dtype="bfloat16",
    system="You sing.",
    turns=(16_000, 53_300),  # 100 frames: one full chunk; 333 frames: a whole window, then a full chunk and a tail
    answers=(17, 14),
    frames=(20, 16),
    talker_repetition_penalty=1.05,
    accept_hidden_layer=3,
    groups=4,
    max_shard_size="200KB",
    thinker=dict(
        hidden_size=40,
        intermediate_size=56,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=3,
        head_dim=12,
        mlp_only_layers=[1],
        num_experts=5,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        moe_intermediate_size=20,
        rope_parameters=_rope(1_000_000.0, [2, 2, 2]),
    ),
    audio=dict(
        num_mel_bins=64,
        encoder_layers=3,
        encoder_attention_heads=3,
        encoder_ffn_dim=48,
        d_model=24,
        n_window_infer=200,
        downsample_hidden_size=6,
    ),
    talker=dict(
        hidden_size=36,
        intermediate_size=52,
        num_hidden_layers=3,
        num_attention_heads=3,
        num_key_value_heads=3,
        head_dim=16,
        num_experts=6,
        num_experts_per_tok=3,
        norm_topk_prob=False,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=28,
        rope_parameters=_rope(1_000_000.0, [4, 2, 2]),
    ),
    predictor=dict(
        intermediate_size=40,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=20,
        rope_parameters=_plain_rope(1_000_000.0),
    ),
    code2wav=dict(
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=12,
        sliding_window=7,
        upsample_rates=[8, 5, 4, 3],
        upsampling_ratios=[2, 2],
        decoder_dim=32,
        rope_parameters=_plain_rope(10_000.0),
    ),
)

WINDOW800 = Fixture(
    name="window800",
    seed=104,
    audio_seed=6000,
    vocab=288,
    codebook=80,
    speaker="joan",
    dtype="float16",
    turns=(139_400, 5_000),  # 871 frames: a window of eight chunks, then a padded tail; 31 frames: not padded
    answers=(17, 14),
    frames=(22, 17),
    talker_repetition_penalty=1.1,
    accept_hidden_layer=2,
    groups=7,
    thinker=dict(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=20,
        decoder_sparse_step=2,
        num_experts=4,
        num_experts_per_tok=3,
        norm_topk_prob=False,
        moe_intermediate_size=24,
        rope_parameters=_rope(50_000.0, [4, 3, 3]),
    ),
    audio=dict(
        num_mel_bins=24,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=56,
        d_model=32,
        n_window_infer=800,
        downsample_hidden_size=8,
    ),
    talker=dict(
        hidden_size=40,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=12,
        num_experts=3,
        num_experts_per_tok=1,
        norm_topk_prob=True,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=24,
        rope_parameters=_rope(50_000.0, [2, 2, 2]),
    ),
    predictor=dict(
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=12,
        rope_parameters=_plain_rope(50_000.0),
    ),
    code2wav=dict(
        hidden_size=32,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        sliding_window=11,
        upsample_rates=[6, 4],
        upsampling_ratios=[2, 3],
        decoder_dim=24,
        rope_parameters=_plain_rope(10_000.0),
    ),
)

FIXTURES = (DENSE, MOE, WINDOW800)


def build(fixture: Fixture, tokenizer) -> Qwen3OmniMoeConfig:
    """The configuration in the reference's own classes. Vision is as small as its classes allow: it is unused."""
    ids = {
        name: special(tokenizer, token)
        for name, token in {
            "audio_token_id": "<|audio_pad|>",
            "image_token_id": "<|image_pad|>",
            "video_token_id": "<|video_pad|>",
            "audio_start_token_id": "<|audio_start|>",
            "vision_start_token_id": "<|vision_start|>",
        }.items()
    }
    role = {name: tokenizer.encode(name).ids[0] for name in ("system", "user", "assistant")}
    hidden, talker_hidden = fixture.thinker["hidden_size"], fixture.talker["hidden_size"]
    codec = fixture.codebook

    thinker = dict(
        text_config=dict(vocab_size=fixture.vocab, max_position_embeddings=2048, **fixture.thinker),
        audio_config=dict(output_dim=hidden, n_window=50, **fixture.audio),
        vision_config=dict(
            depth=1,
            hidden_size=8,
            intermediate_size=8,
            num_heads=1,
            out_hidden_size=hidden,
            patch_size=2,
            deepstack_visual_indexes=[0],
            num_position_embeddings=4,
            temporal_patch_size=1,
            spatial_merge_size=1,
        ),
        audio_end_token_id=special(tokenizer, "<|audio_end|>"),
        vision_end_token_id=special(tokenizer, "<|vision_end|>"),
        user_token_id=role["user"],
        position_id_per_seconds=13,
        **ids,
    )
    talker = dict(
        text_config=dict(vocab_size=codec + SUPPRESSED, max_position_embeddings=2048, **fixture.talker),
        code_predictor_config=dict(
            vocab_size=codec,
            hidden_size=talker_hidden,
            num_code_groups=fixture.groups,
            max_position_embeddings=64,
            **fixture.predictor,
        ),
        num_code_groups=fixture.groups,
        thinker_hidden_size=hidden,
        accept_hidden_layer=fixture.accept_hidden_layer,
        codec_pad_id=codec,
        codec_bos_id=codec + 1,
        codec_eos_token_id=codec + 2,
        codec_nothink_id=codec + 3,
        codec_think_bos_id=codec + 4,
        codec_think_eos_id=codec + 5,
        speaker_id={"other": codec + 7, fixture.speaker: codec + 6},
        position_id_per_seconds=13,
        spatial_merge_size=1,
        **ids,
    )
    return Qwen3OmniMoeConfig(
        thinker_config=thinker,
        talker_config=talker,
        code2wav_config=dict(
            codebook_size=codec, num_quantizers=fixture.groups, max_position_embeddings=2048, **fixture.code2wav
        ),
        im_start_token_id=special(tokenizer, "<|im_start|>"),
        im_end_token_id=special(tokenizer, "<|im_end|>"),
        tts_pad_token_id=special(tokenizer, "<tts_pad>"),
        tts_bos_token_id=special(tokenizer, "<tts_text_bos>"),
        tts_eos_token_id=special(tokenizer, "<tts_text_eod>"),
        system_token_id=role["system"],
        user_token_id=role["user"],
        assistant_token_id=role["assistant"],
    )
