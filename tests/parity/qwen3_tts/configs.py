"""The fixtures' configurations. Sizes differ between them wherever they can, so that nothing passes by being fixed."""

from dataclasses import dataclass, field

import tokens
from reference import Qwen3TTSConfig, Qwen3TTSTokenizerV2Config
from tokens import special

# The reference suppresses the last 1024 talker ids (all but the end of speech): real codes come before them.
SUPPRESSED = 1024


@dataclass(frozen=True)
class Run:
    """One call of the reference's `generate`."""

    text: str
    frames: int  # of the answer
    whole: bool = False  # `non_streaming_mode`: all text stands in the prompt
    speaker: str | None = None
    language: str = "Auto"
    instruct: str | None = None
    recording: int | None = None  # samples of a recording to clone
    reference: str | None = None  # what is said in it; without, the speaker's embedding alone is used


@dataclass(frozen=True)
class Fixture:
    """One checkpoint and its runs."""

    name: str
    kind: str  # `tts_model_type`
    seed: int  # of the weights: the first one tried
    vocab: int
    codebook: int
    groups: int
    dtype: str
    penalty: float
    talker: dict
    predictor: dict
    codec: dict
    runs: tuple[Run, ...]
    speakers: dict = field(default_factory=dict)
    dialects: dict = field(default_factory=dict)
    speaker_encoder: dict = field(default_factory=dict)
    speech_encoder: dict = field(default_factory=dict)


def _mrope(section: list[int]) -> dict:
    return {"interleaved": True, "mrope_section": section, "rope_type": "default"}


CUSTOM = Fixture(
    name="tts_custom",
    kind="custom_voice",
    seed=4,
    vocab=300,
    codebook=64,
    groups=5,
    dtype="bfloat16",
    penalty=1.05,
    speakers={"ada": 13, "grace": 14, "li": 15},
    dialects={"ada": False, "grace": False, "li": "sichuan_dialect"},
    # The predictor is narrower than the talker: a projection stands between.
    talker=dict(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        text_hidden_size=40,
        rope_theta=10_000.0,
        rope_scaling=_mrope([2, 1, 1]),
    ),
    predictor=dict(
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=12,
        rope_theta=10_000.0,
    ),
    codec=dict(
        hidden_size=24,
        latent_dim=32,
        codebook_dim=16,
        intermediate_size=40,
        num_hidden_layers=2,
        head_dim=8,
        num_attention_heads=3,
        num_key_value_heads=3,
        sliding_window=72,
        upsample_rates=[5, 4, 3],
        upsampling_ratios=[2, 2],
        decoder_dim=32,
        rope_theta=10_000.0,
    ),
    runs=(
        Run("the quick brown fox jumps over the lazy dog", frames=24, speaker="Ada"),
        Run(
            "a song about the rain", frames=21, speaker="grace", language="English", instruct="sing softly", whole=True
        ),
        Run("the sea", frames=17, speaker="li"),  # more frames than text; a dialect's id without being asked
        Run("and then sings a song", frames=20, speaker="li", language="English", whole=True),
    ),
)

DESIGN = Fixture(
    name="tts_design",
    kind="voice_design",
    seed=7,
    vocab=288,
    codebook=48,
    groups=4,
    dtype="float16",
    penalty=1.1,
    talker=dict(
        hidden_size=40,
        intermediate_size=56,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=20,
        text_hidden_size=24,
        rope_theta=1_000_000.0,
        rope_scaling=_mrope([4, 3, 3]),
    ),
    predictor=dict(
        hidden_size=40,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=12,
        rope_theta=1_000_000.0,
    ),
    # The window is shorter than the answers.
    codec=dict(
        hidden_size=32,
        latent_dim=24,
        codebook_dim=20,
        intermediate_size=32,
        num_hidden_layers=3,
        head_dim=16,
        num_attention_heads=2,
        num_key_value_heads=2,
        sliding_window=7,
        upsample_rates=[6, 4],
        upsampling_ratios=[2, 3],
        decoder_dim=24,
        rope_theta=10_000.0,
    ),
    runs=(
        Run("jumps over the lazy dog and then sings", frames=22, instruct="an old friend with a low voice", whole=True),
        Run("the quick brown fox", frames=19, instruct="a small and quick voice", language="Chinese"),
        Run("rain on the sea", frames=23),
    ),
)

CLONE = Fixture(
    name="tts_clone",
    kind="base",
    seed=1,
    vocab=300,
    codebook=64,
    groups=3,
    dtype="bfloat16",
    penalty=1.05,
    talker=dict(
        hidden_size=28,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=12,
        text_hidden_size=32,
        rope_theta=1_000_000.0,
        rope_scaling=_mrope([2, 2, 2]),
    ),
    predictor=dict(
        hidden_size=20,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
        rope_theta=1_000_000.0,
    ),
    codec=dict(
        hidden_size=24,
        latent_dim=20,
        codebook_dim=12,
        intermediate_size=32,
        num_hidden_layers=2,
        head_dim=12,
        num_attention_heads=2,
        num_key_value_heads=2,
        sliding_window=9,
        upsample_rates=[5, 4, 3],
        upsampling_ratios=[2, 2],
        decoder_dim=16,
        rope_theta=10_000.0,
    ),
    speaker_encoder=dict(
        mel_dim=128,
        enc_dim=28,
        enc_channels=[16, 16, 16, 16, 48],
        enc_kernel_sizes=[5, 3, 3, 3, 1],
        enc_dilations=[1, 2, 3, 4, 1],
        enc_attention_channels=8,
        enc_res2net_scale=4,
        enc_se_channels=6,
        sample_rate=24_000,
    ),
    speech_encoder=dict(
        hidden_size=24,
        num_filters=4,
        upsampling_ratios=[5, 4, 3, 2],
        num_hidden_layers=2,
        intermediate_size=32,
        num_attention_heads=3,
        num_key_value_heads=3,
        head_dim=8,
        codebook_size=64,
        codebook_dim=10,
        vector_quantization_hidden_dimension=10,
        upsample_groups=24,
        num_quantizers=5,
        sampling_rate=24_000,
    ),
    runs=(
        Run("the rain on the sea", frames=16, recording=4_900),
        Run("the fox", frames=14, recording=4_900, reference="dog and"),  # less text than recording
        Run("and then sings a song about the rain", frames=18, recording=1_300, reference="the lazy dog"),
        Run("sings a song", frames=15, recording=2_400, reference="over the dog", whole=True, language="English"),
    ),
)

FIXTURES = (CUSTOM, DESIGN, CLONE)


def build(fixture: Fixture, tokenizer) -> Qwen3TTSConfig:
    """The configuration in the reference's own classes."""
    codec = fixture.codebook
    talker = dict(
        vocab_size=codec + SUPPRESSED,
        text_vocab_size=fixture.vocab,
        max_position_embeddings=2048,
        num_code_groups=fixture.groups,
        codec_pad_id=codec,
        codec_bos_id=codec + 1,
        codec_eos_token_id=codec + 2,
        codec_think_id=codec + 3,
        codec_nothink_id=codec + 4,
        codec_think_bos_id=codec + 5,
        codec_think_eos_id=codec + 6,
        codec_language_id={
            "chinese": codec + 7,
            "english": codec + 8,
            "sichuan_dialect": codec + 9,
            "beijing_dialect": codec + 10,
        },
        spk_id={name: codec + place for name, place in fixture.speakers.items()},
        spk_is_dialect=fixture.dialects,
        code_predictor_config=dict(
            vocab_size=codec, num_code_groups=fixture.groups, max_position_embeddings=64, **fixture.predictor
        ),
        **fixture.talker,
    )
    return Qwen3TTSConfig(
        talker_config=talker,
        speaker_encoder_config=fixture.speaker_encoder,
        tokenizer_type="qwen3_tts_tokenizer_12hz",
        tts_model_size="1b7",
        tts_model_type=fixture.kind,
        im_start_token_id=special(tokenizer, "<|im_start|>"),
        im_end_token_id=special(tokenizer, "<|im_end|>"),
        tts_pad_token_id=special(tokenizer, "<tts_pad>"),
        tts_bos_token_id=special(tokenizer, "<tts_text_bos>"),
        tts_eos_token_id=special(tokenizer, "<tts_text_eod>"),
        assistant_token_id=tokenizer.encode(tokens.ROLES[2]).ids[0],
        architectures=["Qwen3TTSForConditionalGeneration"],
    )


# An unused encoder of the codec, as small as its class allows: the published file has one beside each decoder.
UNUSED_ENCODER = dict(
    hidden_size=8,
    num_filters=2,
    upsampling_ratios=[2, 2],
    num_hidden_layers=1,
    intermediate_size=8,
    num_attention_heads=1,
    num_key_value_heads=1,
    head_dim=8,
    codebook_size=4,
    codebook_dim=4,
    vector_quantization_hidden_dimension=4,
    upsample_groups=8,
    num_quantizers=2,
    frame_rate=12.5,
    sampling_rate=100,
)


def build_codec(fixture: Fixture) -> Qwen3TTSTokenizerV2Config:
    """The codec's configuration."""
    rates = [*fixture.codec["upsample_rates"], *fixture.codec["upsampling_ratios"]]
    samples = 1
    for rate in rates:
        samples *= rate
    return Qwen3TTSTokenizerV2Config(
        encoder_config=fixture.speech_encoder or UNUSED_ENCODER,
        decoder_config=dict(
            codebook_size=fixture.codebook, num_quantizers=fixture.groups, max_position_embeddings=2048, **fixture.codec
        ),
        encoder_valid_num_quantizers=fixture.groups,
        decode_upsample_rate=samples,
        encode_downsample_rate=samples,
        architectures=["Qwen3TTSTokenizerV2Model"],
    )
