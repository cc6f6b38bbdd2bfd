"""`make test-real`: talks to the published models that `make run-real` serves, and judges what is heard and said.

    run.py [--binary FILE] [--minutes N] [--questions N] [--only NAME...]

Prints each measure, writes target/report/real.json, and the answers to target/real/answers.json. Fails if a check does.
Parts: questions, people, follow_ups, functions, barge_in, long, talk, clients, browser, bad_input.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from bad_input import bad_input
from clients import browser, clients
from common import ROOT, WIRE_RATE, WORK, Outcome, is_right, middle, questions, word_errors
from demo_recipe.evaluate.words import errors, words
from peers import Ear, clear
from server import Caller, RefusedError, Server
from sounds import people, question

# Bounds of checks. Chosen before the first run.
LEAST_RIGHT = 0.7
MOST_HEARD_BEYOND_PEER = 0.02
MOST_VOICE_ERRORS = 0.10
MOST_GROWTH_MIB = 40.0
MOST_WORDS_OFF = 2.0
# Rounds of calls and their results before an answer.
MOST_ROUNDS = 3
# Asked for long answers, which are interrupted.
LONG_ANSWERS = ["How is bread made?", "What do bees do all day?", "Why do the seasons change?"]
VAD = {"type": "server_vad", "silence_duration_ms": 500}


class Run:
    """One server, the judge, and the results."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.lists, self.out = options, questions(), Outcome("real")
        self.ear, self.server = Ear(), Server(options.binary)

    def all(self) -> int:
        """Runs the chosen parts."""
        parts = {
            "questions": self.questions,
            "people": self.people,
            "follow_ups": self.follow_ups,
            "functions": self.functions,
            "barge_in": self.barge_in,
            "long": self.long,
            "talk": self.talk,
            "clients": lambda: clients(self.out, self.server.address, self.lists, self.ear),
            "browser": lambda: browser(self.out, self.server.address, self.lists, self.ear),
            "bad_input": lambda: bad_input(self.out, self.server, self.options.binary, self.ear),
        }
        chosen = self.options.only or list(parts)
        with self.server:
            self.out.row("start_s", self.server.start_s, None, "s", "to ready, with the files in the cache")
            for name in chosen:
                begun = time.monotonic()
                print(f"test-real: {name}", flush=True)
                try:
                    parts[name]()
                except (RefusedError, OSError, subprocess.SubprocessError) as error:
                    self.out.check(name, False, f"{type(error).__name__}: {error}")
                print(f"test-real: {name} took {time.monotonic() - begun:.0f} s", flush=True)
            self.out.row("memory_peak", self.server.mib("VmHWM"), None, "MiB", "of the server")
        return self.out.write()

    def questions(self) -> None:
        """Frozen questions: hearing, answers, and the voice."""
        listed = self.lists["questions"][: self.options.questions]
        heard, peer, right, voice, answers, waits = [], [], 0, [], [], []
        for one in listed:
            sound = question(one["text"], one["voice"])
            with Caller(self.server.address) as caller:
                begun = time.monotonic()
                turn = caller.ask(sound)
            waits.append(turn.first.get("response.output_audio.delta", float("nan")) - begun)
            heard.append((one["text"], turn.heard))
            peer.append((one["text"], self.ear.hear(sound)))
            right += is_right(one["key"], turn.transcript)
            said = self.ear.hear(turn.sound) if len(turn.sound) < 28 * 2 * WIRE_RATE else self.ear.hear_long(turn.sound)
            voice.append((turn.transcript, said))
            answers.append(one | {"heard": turn.heard, "answer": turn.transcript, "said": said})
        WORK.mkdir(parents=True, exist_ok=True)
        (WORK / "answers.json").write_text(json.dumps(answers, indent=1) + "\n")
        ours, theirs, spoken = word_errors(heard), word_errors(peer), word_errors(voice)
        note = f"{ours.words} words; peer: faster-whisper, int8, beam 1"
        self.out.row("questions_wer_heard", ours.rate, theirs.rate, "", note)
        self.out.row("questions_right", right / len(listed), None, "", f"{right} of {len(listed)} by key words")
        self.out.row("questions_wer_voice", spoken.rate, None, "", f"{spoken.words} words, heard by faster-whisper")
        self.out.row(
            "questions_first_sound_s", middle(waits), None, "s", "p50, from the first byte of a turn sent at once"
        )
        self.out.check(
            "questions_heard_as_the_peer", ours.rate <= theirs.rate + MOST_HEARD_BEYOND_PEER, f"{ours.rate:.3f}"
        )
        self.out.check("questions_answered", right >= LEAST_RIGHT * len(listed), f"{right} of {len(listed)}")
        self.out.check("questions_voice_understood", spoken.rate <= MOST_VOICE_ERRORS, f"{spoken.rate:.3f}")
        lengths = [len(words(answer["answer"])) for answer in answers]
        self.out.row(
            "answers_words", middle([float(length) for length in lengths]), None, "words", f"at most {max(lengths)}"
        )
        marked = [
            answer["answer"]
            for answer in answers
            if any(sign in answer["answer"] for sign in ("**", "\n- ", "```", "\n1."))
        ]
        self.out.check("answers_without_markup", len(marked) <= len(listed) // 20, str(marked[:2]))

    def people(self) -> None:
        """Recordings of people, as a transcription hears them."""
        heard, peer = [], []
        for text, sound in people():
            with Caller(self.server.address, output_modalities=["text"], max_output_tokens=1) as caller:
                heard.append((text, caller.ask(sound).heard))
            peer.append((text, self.ear.hear(sound)))
        ours, theirs = word_errors(heard), word_errors(peer)
        self.out.row("people_wer_heard", ours.rate, theirs.rate, "", f"{len(heard)} recordings, {ours.words} words")
        for (text, one), (_, other) in zip(heard, peer, strict=True):
            if errors(text, one).wrong > errors(text, other).wrong:
                print(f"    {text!r}: heard {one!r}, by the peer {other!r}", flush=True)
        # 60 words: a word is 0.017.
        self.out.check(
            "people_heard_as_the_peer", ours.wrong <= theirs.wrong + 4, f"{ours.wrong} and {theirs.wrong} words"
        )

    def follow_ups(self) -> None:
        """Second turns that need the first."""
        right = 0
        for pair in self.lists["follow_ups"]:
            with Caller(self.server.address) as caller:
                turns = [caller.ask(question(one["text"], one["voice"])) for one in pair]
            holds = is_right(pair[-1]["key"], turns[-1].transcript)
            right += holds
            if not holds:
                print(f"    {pair[-1]['text']!r}: {turns[-1].transcript!r}", flush=True)
        count = len(self.lists["follow_ups"])
        self.out.row("follow_ups_right", right / count, None, "", f"{right} of {count}")
        self.out.check("follow_ups_answered", right >= count - 2, f"{right} of {count}")

    def functions(self) -> None:
        """Functions of the page, called by voice and answered aloud."""
        tools = page('tools(["clock", "dice"])')
        called = aloud = 0
        for one in self.lists["functions"]:
            with Caller(self.server.address, tools=tools) as caller:
                turn = caller.ask(question(one["text"], one["voice"]))
                if one["function"] not in [call["name"] for call in turn.calls]:
                    print(
                        f"    {one['text']!r}: heard {turn.heard!r}, said {turn.transcript!r}, {turn.calls}", flush=True
                    )
                    continue
                called += 1
                # The page answers every call, also a further one.
                answer, result = turn, ""
                for _ in range(MOST_ROUNDS):
                    for call in answer.calls:
                        item = page(f"answer({json.dumps(call)})")
                        caller.send("conversation.item.create", item=item)
                        result = str(item)
                    caller.send("response.create")
                    answer = caller.answer()
                    if not answer.calls:
                        break
            # A call that is read aloud is no answer.
            aloud += bool(answer.sound and answer.transcript and "{" not in answer.transcript)
            print(f"    {result}: {answer.status}, said {answer.transcript!r}, {answer.calls}", flush=True)
        count = len(self.lists["functions"])
        self.out.row("functions_called", called / count, None, "", f"{called} of {count} by voice")
        self.out.row("functions_answered_aloud", aloud / count, None, "", f"{aloud} of {count}")
        self.out.check("functions_of_the_page", called >= 2 and aloud >= 2, f"{called} called, {aloud} answered")

    def barge_in(self) -> None:
        """Interruptions, and the history cut to the heard word."""
        second = clear(self.lists["questions"], self.ear, 1)[0]
        offs = []
        for text in LONG_ANSWERS:
            sounds = question(text, "bf_lily"), question(second["text"], second["voice"])
            kept, ear, whole, answer = self.interrupted(*sounds)
            offs.append(float(abs(len(words(kept)) - len(words(ear)))))
            print(f"    kept {kept!r}, heard {ear!r}", flush=True)
            self.out.check("barge_in_cuts_the_history", 0 < len(kept) < len(whole), f"kept {kept!r} of {whole!r}")
            self.out.check("barge_in_is_answered", is_right(second["key"], answer), answer)
        self.out.row("barge_in_words_off", middle(offs), None, "words", f"p50 against the judge; at most {max(offs):g}")
        self.out.check("barge_in_cuts_to_the_heard_word", middle(offs) <= MOST_WORDS_OFF, str(offs))

    def interrupted(self, first: bytes, second: bytes) -> tuple[str, str, str, str]:
        """Asks, interrupts the answer after three seconds, and asks again. Returns the words that the history kept,
        those that were heard, the whole text, and the second answer.
        """
        with Caller(self.server.address, VAD, instructions="Answer at length, in ten sentences.") as caller:
            caller.say(first + silence(0.8), pace=1.0)
            begun = caller.answer(lambda turn: len(turn.sound) > 3 * 2 * WIRE_RATE)
            started = begun.first["response.output_audio.delta"]
            time.sleep(max(0.0, started + 3.0 - time.monotonic()))
            item = begun.items["message"]
            caller.say(second + silence(0.8), pace=1.0)
            rest = caller.answer(lambda turn: turn.status != "" or "input_audio_buffer.speech_started" in turn.first)
            heard_ms = int(1000 * (rest.first.get("input_audio_buffer.speech_started", started + 3.0) - started))
            caller.send("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=heard_ms)
            answer = caller.answer(lambda turn: turn.status == "completed" and bool(turn.sound))
            caller.send("conversation.item.retrieve", item_id=item)
            kept = caller.until("conversation.item.retrieved")["item"]["content"][0]["transcript"]
        sound = (begun.sound + rest.sound)[: heard_ms * WIRE_RATE // 1000 * 2]
        return kept, self.ear.hear(sound), begun.transcript + rest.transcript, answer.transcript

    def long(self) -> None:
        """Long texts in whole, in clauses and in pieces: the same words by ear."""
        pairs: dict[str, list[tuple[str, str]]] = {"whole": [], "clauses": [], "pieces": []}
        for text in self.lists["long"]:
            sentences = [f"{sentence.strip()}." for sentence in text.split(".") if sentence.strip()]
            cut = [text[at : at + 7] for at in range(0, len(text), 7)]
            sounds = {
                "whole": self.server.speech(text),
                "clauses": b"".join(self.server.speech(sentence) for sentence in sentences),
                "pieces": self.server.speech(text, pieces=cut),
            }
            for name, sound in sounds.items():
                pairs[name].append((text, self.ear.hear_long(sound)))
        same = sum(
            words(a) == words(b) == words(c)
            for (_, a), (_, b), (_, c) in zip(pairs["whole"], pairs["clauses"], pairs["pieces"], strict=True)
        )
        for name, found in pairs.items():
            self.out.row(f"long_wer_{name}", word_errors(found).rate, None, "", f"{len(found)} texts")
        self.out.row("long_same_by_ear", float(same), None, "texts", f"of {len(self.lists['long'])}")
        rates = [word_errors(found).rate for found in pairs.values()]
        self.out.check("long_texts_are_the_same_by_ear", max(rates) - min(rates) <= 0.02, str(rates))

    def talk(self) -> None:
        """Minutes of one conversation; memory stays flat."""
        listed, memory, turns = self.lists["questions"], [], 0
        end = time.monotonic() + 60 * self.options.minutes
        with Caller(self.server.address) as caller:
            while time.monotonic() < end:
                one = listed[turns % len(listed)]
                caller.ask(question(one["text"], one["voice"]))
                memory.append(self.server.mib())
                turns += 1
        quarter = max(1, len(memory) // 4)
        second, last = middle(memory[quarter : 2 * quarter] or memory), middle(memory[-quarter:])
        self.out.row(
            "talk_turns", float(turns), None, "turns", f"in {self.options.minutes:g} minutes, one conversation"
        )
        self.out.row(
            "talk_memory_growth", last - second, None, "MiB", f"{second:.0f} to {last:.0f} MiB, second to last quarter"
        )
        self.out.check("talk_memory_is_flat", last - second <= MOST_GROWTH_MIB, f"{second:.0f} to {last:.0f} MiB")


def page(call: str) -> list | dict:
    """Result of a call of a function of web/functions.js."""
    script = f'import("{ROOT}/web/functions.js").then(({{ tools, answer }}) => console.log(JSON.stringify({call})))'
    node = ROOT / "target/tools/python/bin/node"
    done = subprocess.run([node, "-e", script], capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


def silence(seconds: float) -> bytes:
    """Silence of the wire."""
    return bytes(int(WIRE_RATE * seconds) * 2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/repartee")
    parser.add_argument("--minutes", type=float, default=10.0, help="of the long talk")
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--only", nargs="*", default=[])
    return Run(parser.parse_args()).all()


if __name__ == "__main__":
    sys.exit(main())
