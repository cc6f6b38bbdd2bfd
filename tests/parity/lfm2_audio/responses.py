"""Conversations with the reference: its generators, and the numbers behind each of their choices."""

import math
import types

import torch
from liquid_audio import ChatState, LFM2AudioModel, LFMModality
from liquid_audio.model import lfm2_audio
from models import CODEBOOKS, ENTRIES

import signals
import weights

# Lead of each greedy choice, in logits.
MARGIN = 5e-3
# Text tokens before the text's end, frames before the speech's end, and text before a given text is spoken.
TEXT_END, SPEECH_END, SPEECH_START = 8, 31, 2
# Positions of the first response, which ends with the frame that ends the speech.
FIRST = TEXT_END + SPEECH_END + 2
INTERLEAVED = "Respond with interleaved text and audio."
SPEAKS = "Perform TTS. Use the US male voice."
HEARS = "Perform ASR."


def with_small_codebooks(function):
    """The reference's generator, whose last entry of a codebook is ours."""
    code = function.__wrapped__.__code__
    consts = tuple(ENTRIES if const == 2048 else const for const in code.co_consts)
    made = types.FunctionType(code.replace(co_consts=consts), vars(lfm2_audio), code.co_name)
    made.__kwdefaults__ = function.__wrapped__.__kwdefaults__
    return made


class Recorder:
    """Numbers of a run: hidden rows, logits of text and of codes, and the smallest lead of a choice."""

    def __init__(self, model):
        self.rows, self.text_rows, self.text, self.firsts, self.codes, self.lead = [], [], [], [], [], math.inf
        self.model = model

    def __enter__(self):
        text, frame = LFM2AudioModel._sample_text_token, LFM2AudioModel._sample_audio_frame
        self.kept = (text, frame)
        recorder = self

        def chosen(logits):
            best = logits.topk(2).values
            recorder.lead = min(recorder.lead, float(best[0] - best[1]))

        # The last row of the language model is that of the position which is sampled next.
        def keep(_module, _inputs, output):
            recorder.rows.append(output.last_hidden_state[0, -1].clone())

        self.hook = self.model.lfm.register_forward_hook(keep)

        def sample_text(model, logits, **options):
            recorder.text_rows.append(recorder.rows[-1])
            recorder.text.append(logits.clone())
            chosen(logits)
            return text(model, logits, **options)

        def sample_frame(model, embedding, **options):
            rows, inputs = [], []
            for table in model.depth_embeddings:

                def logits(x, table=table):
                    inputs.append(table.embedding_norm(x))
                    rows.append(table.to_logits(inputs[-1]))
                    return rows[-1].clone()

                table.get_logits = logits
            out = frame(model, embedding, **options)
            for table in model.depth_embeddings:
                del table.get_logits
            for row in rows:
                chosen(row)
            recorder.firsts.append(inputs[0])
            recorder.codes.append(torch.stack(rows))
            return out

        LFM2AudioModel._sample_text_token, LFM2AudioModel._sample_audio_frame = sample_text, sample_frame
        return self

    def __exit__(self, *_):
        self.hook.remove()
        LFM2AudioModel._sample_text_token, LFM2AudioModel._sample_audio_frame = self.kept


INTERLEAVE = with_small_codebooks(LFM2AudioModel.generate_interleaved)
SEQUENCE = with_small_codebooks(LFM2AudioModel.generate_sequential)


def generate(model, chat: ChatState, generator, most: int) -> dict:
    """One response: its positions in order, and what was computed for them."""
    with torch.no_grad(), Recorder(model) as recorder:
        out = [piece.clone() for piece in generator(model, **chat, max_new_tokens=most)]
    return {
        "text": [int(piece) for piece in out if piece.numel() == 1],
        "frames": [piece.tolist() for piece in out if piece.numel() > 1],
        "kinds": [int(piece.numel() > 1) for piece in out],
        "pieces": out,
        "recorder": recorder,
        "prompt": [int(flag) for flag in chat.modality_flag[0]],
        "prompt_text": chat.text[0].tolist(),
        "prompt_codes": chat.audio_out.T.flatten().tolist(),
    }


def append(chat: ChatState, run: dict) -> None:
    """Adds a response to the conversation, as the reference's demo does."""
    kinds = [LFMModality.AUDIO_OUT if kind else LFMModality.TEXT for kind in run["kinds"]]
    frames = torch.tensor(run["frames"], dtype=torch.long).reshape(-1, CODEBOOKS).T
    chat.append(torch.tensor([run["text"]], dtype=torch.long), frames, torch.tensor(kinds))
    chat.end_turn()


def question(proc, system: str) -> ChatState:
    chat = ChatState(proc, codebooks=CODEBOOKS, dtype=torch.float32)
    chat.new_turn("system")
    chat.add_text(system)
    chat.end_turn()
    chat.new_turn("user")
    return chat


def ask(chat: ChatState) -> None:
    chat.end_turn()
    chat.new_turn("assistant")


def audio(samples: int, seed: int) -> torch.Tensor:
    return torch.from_numpy(signals.speech(samples, seed))


def spoken(run: dict) -> list[list[int]]:
    """Frames but the end."""
    return [frame for frame in run["frames"] if frame[0] != ENTRIES]


def is_plain(run: dict) -> bool:
    """True if only a first code ends the speech."""
    return all(set(frame) == {ENTRIES} or ENTRIES not in frame for frame in run["frames"])


def solved(table: torch.Tensor, entry: int, hidden: list[torch.Tensor], logits: list[torch.Tensor]) -> bool:
    """Sets a row of a head so that its logit is the largest at the last of some steps, and at no earlier one."""
    others = [torch.cat([row[:entry], row[entry + 1 :]]).max() for row in logits]
    row = weights.stop_row([(torch.stack(hidden), torch.stack(others))])
    if row is None:
        return False
    with torch.no_grad():
        table[entry] = row.to(torch.bfloat16).float()
    return True


def first_question(proc) -> ChatState:
    """The conversation's first prompt."""
    chat = question(proc, INTERLEAVED)
    chat.add_audio(audio(21_000, 3)[None], 16_000)
    ask(chat)
    return chat


def end_first(model, proc) -> dict | None:
    """The first response, whose text and speech end after some positions; None if it does not end there."""
    recorder = generate(model, first_question(proc), INTERLEAVE, 40)["recorder"]
    if len(recorder.text) <= TEXT_END:
        return None
    until = TEXT_END + 1
    if not solved(model.lfm.embed_tokens.weight, 130, recorder.text_rows[:until], recorder.text[:until]):
        return None
    recorder = generate(model, first_question(proc), INTERLEAVE, 60)["recorder"]
    if len(recorder.firsts) <= SPEECH_END:
        return None
    until = SPEECH_END + 1
    table, logits = model.depth_embeddings[0].embedding.weight, [codes[0] for codes in recorder.codes[:until]]
    if not solved(table, ENTRIES, recorder.firsts[:until], logits):
        return None
    return generate(model, first_question(proc), INTERLEAVE, FIRST)


def conversations(model, proc) -> dict[str, dict] | None:
    """All runs, or None if an answer does not end as it should, or a choice is narrow."""
    first = end_first(model, proc)
    if first is None:
        return None
    text = first["text"]
    if text[-1:] != [130] or len(set(text)) < 5 or first["frames"][-1] != [ENTRIES] * CODEBOOKS:
        return None
    chat = first_question(proc)
    append(chat, first)
    chat.new_turn("user")
    chat.add_text("the quick brown fox")
    ask(chat)
    second = generate(model, chat, INTERLEAVE, 30)
    # Text, speech, and text again.
    if len(second["kinds"]) < 24 or second["kinds"][:8] != [0] * 6 + [1] * 2:
        return None
    found = {"turn0": first, "turn1": second, **sequential(model, proc)}
    # The given text is spoken from its third position on.
    speech, others = found["speech"]["recorder"], [found[name]["recorder"] for name in ("turn0", "turn1", "transcript")]
    if len(speech.text) <= SPEECH_START:
        return None
    rows = [row for recorder in others for row in recorder.text_rows] + speech.text_rows[: SPEECH_START + 1]
    logits = [row for recorder in others for row in recorder.text] + speech.text[: SPEECH_START + 1]
    if not solved(model.lfm.embed_tokens.weight, 128, rows, logits):
        return None
    found |= {"turn1": generate(model, chat, INTERLEAVE, 30), **sequential(model, proc)}
    found["turn0"] = generate(model, first_question(proc), INTERLEAVE, FIRST)
    wide = all(run["recorder"].lead >= MARGIN and is_plain(run) for run in found.values())
    return found if wide and len(found["transcript"]["text"]) > 4 and len(found["speech"]["frames"]) > 10 else None


def sequential(model, proc) -> dict[str, dict]:
    """Responses in sequence: a given text, and a transcript."""
    chat = question(proc, SPEAKS)
    chat.add_text("the lazy dog sings")
    ask(chat)
    said = generate(model, chat, SEQUENCE, 24)
    chat = question(proc, HEARS)
    chat.add_audio(audio(13_111, 9)[None], 16_000)
    ask(chat)
    return {"speech": said, "transcript": generate(model, chat, SEQUENCE, 16)}
