"""The thinker and its audio tower: built, initialised, and run on batches.

The classes are the reference's; what they compute here is what the engine computes: attention windows of one second,
each encoded alone.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import nn
from transformers import Qwen3OmniMoeForConditionalGeneration
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeThinkerForConditionalGeneration

from . import config, features, tokenizer
from .features import Windows

IGNORED = -100
# Batches are padded to multiples of it: a processor's library plans a product anew for each shape it has not seen.
STEP = 16


def rounded(count: int, step: int = STEP) -> int:
    """The next multiple."""
    return -(-count // step) * step


@dataclass
class Batch:
    """Several conversations as the thinker reads them, padded at their ends."""

    ids: torch.Tensor  # [conversations, positions]
    targets: torch.Tensor  # the token that should follow, IGNORED where nobody asks
    windows: Windows  # of every spoken turn, in the order of their audio tokens in `ids`
    questions: list[torch.Tensor]  # token ids of what each spoken turn says

    def to(self, device: torch.device) -> Batch:
        ids, targets = (part.to(device, non_blocking=True) for part in (self.ids, self.targets))
        return Batch(ids, targets, self.windows.to(device), self.questions)


class Thinker(nn.Module):
    """The reference's thinker, and a head that writes down what it hears (in training only)."""

    def __init__(self, words: Tokenizer, embeddings: torch.Tensor, attention: str = "eager") -> None:
        super().__init__()
        whole = config.model(words).thinker_config
        self.reference = Qwen3OmniMoeThinkerForConditionalGeneration._from_config(whole, attn_implementation=attention)
        self.audio_token = whole.audio_token_id
        # 0 is CTC's blank. Tied to the embeddings of the tokens instead, so that sound would look like text, it learnt
        # to hear more slowly.
        self.transcript = nn.Linear(config.HIDDEN, words.get_vocab_size() + 1)
        self.embedding.weight.data.copy_(embeddings)
        for frozen in (self.reference.model.visual, self.embedding):
            frozen.requires_grad_(False)
        self._initialise()
        self.tower.to(memory_format=torch.channels_last)  # nearly twice as fast on a processor

    @property
    def tower(self) -> nn.Module:
        return self.reference.model.audio_tower

    @property
    def embedding(self) -> nn.Embedding:
        return self.reference.get_input_embeddings()

    def _initialise(self) -> None:
        """Scales at which the audio tower learns: with the .02 of the reference's classes it takes ten times longer."""
        for module in self.tower.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.normal_(self.tower.conv_out.weight, 0.0, 2.0 / self.tower.conv_out.in_features**0.5)
        for layer in self.tower.layers:
            layer.self_attn.out_proj.weight.data.mul_(0.5)
            layer.fc2.weight.data.mul_(0.5)

    def warm_start(self, folder: Path, words: Tokenizer) -> None:
        """Takes over what a checkpoint of the same shape has learnt; tokens by their text."""
        trained = Qwen3OmniMoeForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).thinker.state_dict()
        own = self.reference.state_dict()
        head, embedding = (
            trained.pop("lm_head.weight"),
            next(name for name in own if name.endswith("embed_tokens.weight")),
        )
        trained.pop(embedding)
        fitting = {name: value for name, value in trained.items() if own[name].shape == value.shape}
        self.reference.load_state_dict(fitting, strict=False)
        old, new = common_tokens(folder, words)
        self.reference.lm_head.weight.data.normal_(0.0, float(head.std()))
        self.reference.lm_head.weight.data[new] = head[old]

    def hear(self, windows: Windows) -> torch.Tensor:
        """Audio embeddings, `[tokens of all windows, hidden]`."""
        tower = self.tower
        # A turn's only window is not padded to a full one: what lies behind its end is zero for every convolution.
        short = windows.first & (windows.frames < features.WINDOW)
        full = self._halve(windows.mel[~short], None)
        cut = self._halve(windows.mel[short], windows.frames[short])
        rows = full.new_zeros(rounded(len(windows.mel)), *full.shape[1:])
        rows = rows.index_put(torch.where(~short), full).index_put(torch.where(short), cut)
        positions = rows.shape[1]
        rows = rows + tower.positional_embedding.positional_embedding[:positions].to(rows.dtype)
        tokens = F.pad(windows.tokens(), (0, len(rows) - len(windows.mel)))
        present = torch.arange(positions, device=rows.device)[None] < tokens[:, None]
        for layer in tower.layers:
            rows = rows + self._attend(layer.self_attn, layer.self_attn_layer_norm(rows), present)
            rows = rows + layer.fc2(layer.activation_fn(layer.fc1(layer.final_layer_norm(rows))))
        return tower.proj2(tower.act(tower.proj1(tower.ln_post(rows))))[present]

    def _halve(self, mel: torch.Tensor, lengths: torch.Tensor | None) -> torch.Tensor:
        """Through three halving convolutions: `[windows, WINDOW_TOKENS, width]`."""
        tower = self.tower
        count = len(mel)
        picture = F.pad(mel, (0, 0, 0, 0, 0, rounded(count) - count)).transpose(1, 2)[:, None]
        picture = picture.contiguous(memory_format=torch.channels_last)
        if lengths is not None:
            lengths = F.pad(lengths, (0, len(picture) - count))
        for convolution in (tower.conv2d1, tower.conv2d2, tower.conv2d3):
            picture = F.gelu(convolution(picture))
            if lengths is not None:
                lengths = (lengths + 1) // 2
                behind = torch.arange(picture.shape[-1], device=picture.device)[None] >= lengths[:, None]
                picture = picture.masked_fill(behind[:, None, None], 0.0)
        padded, channels, bins, positions = picture.shape
        return tower.conv_out(picture.permute(0, 3, 1, 2).reshape(padded, positions, channels * bins))[:count]

    @staticmethod
    def _attend(attention: nn.Module, rows: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
        count, positions, width = rows.shape

        def heads(projection: nn.Module) -> torch.Tensor:
            return projection(rows).view(count, positions, attention.num_heads, -1).transpose(1, 2)

        # Written out: the fused kernels are slow on a thousand squares of 13 by 13.
        scores = (
            heads(attention.q_proj) @ heads(attention.k_proj).transpose(2, 3) * (width // attention.num_heads) ** -0.5
        )
        scores = scores.float().masked_fill(~present[:, None, None], -1e9)
        mixed = scores.softmax(-1).to(rows.dtype) @ heads(attention.v_proj)
        return attention.out_proj(mixed.transpose(1, 2).reshape(count, positions, width))

    def read(self, ids: torch.Tensor, heard: torch.Tensor) -> torch.Tensor:
        """Last hidden states of padded conversations. Positions simply count, in all three rotary rows: that is what
        the reference's `get_rope_index` and the engine give for text and sound.
        """
        rows = self.embedding(ids)
        rows = rows.masked_scatter((ids == self.audio_token)[..., None], heard.to(rows.dtype))
        positions = torch.arange(ids.shape[1], device=ids.device)[None, None].expand(3, len(ids), -1)
        return self.reference.model(inputs_embeds=rows, position_ids=positions, use_cache=False).last_hidden_state

    def losses(
        self, batch: Batch, answers: bool = True, transcript_reaches_tower: bool = True
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Cross-entropy of the answers' tokens, CTC of the questions, and the share of right tokens in answers."""
        heard = self.hear(batch.windows)
        zero = heard.new_zeros((), dtype=torch.float32)
        written = (
            self._transcription(heard if transcript_reaches_tower else heard.detach(), batch)
            if batch.questions
            else zero
        )
        if not answers:
            return zero, written, zero
        asked = (batch.targets != IGNORED).flatten().nonzero().squeeze(1)
        wanted = batch.targets.flatten()[asked]
        asked = F.pad(asked, (0, rounded(len(asked), 4 * STEP) - len(asked)))
        hidden = self.read(batch.ids, heard).flatten(0, 1)[asked]
        logits = self.reference.lm_head(hidden)[: len(wanted)].float()
        return F.cross_entropy(logits, wanted), written, (logits.argmax(-1) == wanted).float().mean()

    def _transcription(self, heard: torch.Tensor, batch: Batch) -> torch.Tensor:
        windows = batch.windows
        starts = windows.tokens().cumsum(0) - windows.tokens()  # of each window's rows
        turn_of_row = windows.turn.repeat_interleave(windows.tokens())
        place = torch.arange(len(heard), device=heard.device) - starts[windows.first][turn_of_row]
        lengths = turn_of_row.bincount(minlength=len(batch.questions))
        padded = heard.new_zeros(rounded(int(lengths.max())), rounded(len(batch.questions)), heard.shape[1])
        padded = padded.index_put((place, turn_of_row), heard)
        log_probabilities = F.log_softmax(self.transcript(padded)[:, : len(batch.questions)].float(), -1)
        sizes = torch.tensor([len(question) for question in batch.questions])
        said = torch.cat(batch.questions).to(heard.device) + 1
        return F.ctc_loss(log_probabilities, said, lengths.cpu(), sizes, zero_infinity=True)


def common_tokens(folder: Path, words: Tokenizer) -> tuple[list[int], list[int]]:
    """Ids of the tokens that a checkpoint's tokenizer and ours both know: theirs and ours."""
    theirs, ours = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab(), words.get_vocab()
    both = sorted(ours.keys() & theirs.keys())
    return [theirs[token] for token in both], [ours[token] for token in both]


def warm_embeddings(work: Path, folder: Path) -> None:
    """Makes `embed.pt`, unless it is there, with the rows of a checkpoint for the tokens that it knows. A work folder
    without tokens takes the checkpoint's, so that its talker reads what this thinker writes.
    """
    path, tokens = work / "embed.pt", work / "tokenizer.json"
    if path.exists():
        return
    if not tokens.exists():
        work.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / "tokenizer.json", tokens)
    made = tokenizer.embeddings(work)
    trained = (
        Qwen3OmniMoeForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
        .thinker.get_input_embeddings()
        .weight
    )
    theirs, ours = common_tokens(folder, tokenizer.load(work))
    made[ours] = trained.detach()[theirs]
    torch.save(made, path)
