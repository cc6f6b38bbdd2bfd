"""The reference implementation of Kokoro: the modules of kokoro 0.9.4, without what only its command needs.

`pip download --no-deps kokoro==0.9.4` gives its wheel; KOKORO names the folder that it is unpacked in.
"""

import importlib.util
import os
import sys
import types
from pathlib import Path

import torch

VERSION = "0.9.4"


def load():
    """The modules `kokoro.istftnet` and `kokoro.model`, with noise and drawn phases at 0."""
    folder = Path(os.environ["KOKORO"])
    assert (folder / f"kokoro-{VERSION}.dist-info").is_dir(), f"{folder} does not hold kokoro {VERSION}"
    package = types.ModuleType("kokoro")
    package.__path__ = [str(folder / "kokoro")]
    # Imported there, but not used by the modules.
    absent: dict[str, dict[str, object]] = {
        "loguru": {"logger": types.SimpleNamespace(debug=lambda *_: None)},
        "attr": {"attr": None},
        "huggingface_hub": {"hf_hub_download": None},
    }
    for name, members in absent.items():
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = types.ModuleType(name)
            vars(sys.modules[name]).update(members)
    sys.modules["kokoro"] = package
    import kokoro.istftnet as istftnet
    import kokoro.model as model

    torch.rand = lambda *shape, **_: torch.zeros(*shape)
    torch.randn_like = torch.zeros_like
    return istftnet, model


class Trace:
    """Outputs of modules by name, of the latest call."""

    def __init__(self, model):
        self.found = {}
        decoder, predictor = model.decoder, model.predictor
        generator = decoder.generator
        self.watch("bert", model.bert_encoder)
        self.watch("encoded", predictor.text_encoder)
        self.watch("logits", predictor.duration_proj)
        self.watch("text", model.text_encoder, columns=True)
        self.watch("pitch", predictor.F0_proj, columns=True)
        self.watch("loudness", predictor.N_proj, columns=True)
        self.watch("features", decoder.decode[3], columns=True)
        self.watch("spectra", generator.conv_post, columns=True)
        for level in range(generator.num_upsamples):
            # Its input is the level's raised rows.
            first = generator.resblocks[level * generator.num_kernels]
            first.register_forward_pre_hook(lambda _, given, level=level: self.keep(f"raised{level}", given[0], True))
        self.source(generator)

    def source(self, generator):
        """Keeps signal and spectra of the source."""
        transform = generator.stft.transform

        def kept(signal):
            magnitude, phase = transform(signal)
            self.keep("signal", signal)
            self.keep("source", torch.cat([magnitude, phase], dim=1), True)
            return magnitude, phase

        generator.stft.transform = kept

    def watch(self, name, module, columns=False):
        """Keeps a module's output."""
        module.register_forward_hook(lambda _, __, out: self.keep(name, out, columns))

    def keep(self, name, tensor, columns=False):
        """Keeps a tensor `[1, rows, columns]`, or `[1, columns, rows]`."""
        tensor = tensor[0].detach()
        self.found[name] = (tensor.T if columns else tensor).contiguous().clone()
