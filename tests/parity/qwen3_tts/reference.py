"""Imports the reference, `qwen-tts`, without its 25 Hz tokenizer: it is not served and needs several more packages."""

import sys
import types

_absent = types.ModuleType("qwen_tts.core.tokenizer_25hz.modeling_qwen3_tts_tokenizer_v1")
vars(_absent)["Qwen3TTSTokenizerV1Model"] = type("Qwen3TTSTokenizerV1Model", (), {})
sys.modules[_absent.__name__] = _absent

from qwen_tts.core.models.configuration_qwen3_tts import Qwen3TTSConfig  # noqa: E402
from qwen_tts.core.models.modeling_qwen3_tts import (  # noqa: E402
    Qwen3TTSForConditionalGeneration,
    mel_spectrogram,
)
from qwen_tts.core.tokenizer_12hz.configuration_qwen3_tts_tokenizer_v2 import Qwen3TTSTokenizerV2Config  # noqa: E402
from qwen_tts.core.tokenizer_12hz.modeling_qwen3_tts_tokenizer_v2 import Qwen3TTSTokenizerV2Model  # noqa: E402

__all__ = [
    "Qwen3TTSConfig",
    "Qwen3TTSForConditionalGeneration",
    "Qwen3TTSTokenizerV2Config",
    "Qwen3TTSTokenizerV2Model",
    "mel_spectrogram",
]
