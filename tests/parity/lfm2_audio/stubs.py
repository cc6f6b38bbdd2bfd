"""Stands in for packages that liquid-audio imports and these scripts do not need: import it before liquid-audio."""

import sys
import types

# The processor resamples with torchaudio, which is not installed: the recordings have the model's rate.
torchaudio = types.ModuleType("torchaudio")
setattr(torchaudio, "functional", types.SimpleNamespace(resample=lambda wave, rate, to: wave))  # noqa: B010
sys.modules.setdefault("torchaudio", torchaudio)
for absent in ("sphn", "sentencepiece"):
    stub = types.ModuleType(absent)
    setattr(stub, "SentencePieceProcessor", object)  # noqa: B010
    sys.modules.setdefault(absent, stub)
