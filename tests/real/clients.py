"""Stock clients and a browser against the published models, each in a process of its own with its own packages."""

import base64
import json
import os
import subprocess
import wave
from pathlib import Path

from common import ROOT, WIRE_RATE, WORK, Outcome, is_right, word_errors
from peers import Ear, clear
from sounds import question, write_wave

WITHIN_S = 300


def clients(out: Outcome, address: str, lists: dict, ear: Ear) -> None:
    """Talks by each kind of stock client; an answer is right by its key words."""
    asked = clear(lists["questions"], ear, 2)
    folder = WORK / "clients"
    folder.mkdir(parents=True, exist_ok=True)
    turns = []
    for index, one in enumerate(asked):
        path = folder / f"turn-{index}.pcm"
        # Turn detection needs the silence behind a turn.
        path.write_bytes(question(one["text"], one["voice"]) + bytes(WIRE_RATE * 2))
        turns.append({"say": str(path), "until": "finished"})
    function = {"name": "read", "description": lists["long"][0], "parameters": {}, "result": ""}
    scenario = folder / "scenario.json"
    described = {"folder": str(folder), "rate": WIRE_RATE, "turns": turns, "key": "none", "function": None}
    scenario.write_text(json.dumps(described))
    python = ROOT / "target/tools/clients/bin/python"

    def run(name: str) -> dict:
        command: list[str | Path] = [python, ROOT / f"tests/clients/{name}.py", address, scenario]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WITHIN_S)
        if done.returncode != 0:
            return {"failed": (done.stderr or done.stdout).strip()[-300:]}
        return json.loads(done.stdout)

    def judge(name: str, found: dict, answers: list[str]) -> None:
        right = [is_right(one["key"], answer) for one, answer in zip(asked, answers, strict=False)]
        out.check(
            f"client_{name}", "failed" not in found and bool(right) and all(right), found.get("failed") or str(answers)
        )

    for name, script in [("websocket", "pypi_openai"), ("webrtc", "pypi_aiortc")]:
        found = run(script)
        judge(name, found, [answer["transcript"] for answer in found.get("answers", [])])
    found = run("pypi_openai_baseline")
    judge("chat", found, [found["whole"]["transcript"]] if "whole" in found else [])
    found = run("pypi_openai_transcription")
    pairs = list(zip([one["text"] for one in asked], found.get("transcripts", []), strict=False))
    holds = len(pairs) == len(asked) and word_errors(pairs).rate <= 0.2
    out.check("client_transcription", holds, found.get("failed") or str(pairs))
    found = speech(python, address, function["description"])
    (folder / "speech.pcm").write_bytes(base64.b64decode(found.get("sound", "")))
    out.check("client_speech", len(found.get("sound", "")) > 100_000, found.get("failed", "too short"))


def speech(python: Path, address: str, text: str) -> dict:
    """Has a text read aloud by the stock client."""
    script = (
        "import base64, json, sys; from openai import OpenAI; "
        "c = OpenAI(base_url=sys.argv[1], api_key='none', max_retries=0); "
        "r = c.audio.speech.create(model='tts', voice='alloy', input=sys.argv[2], response_format='pcm'); "
        "print(json.dumps({'sound': base64.b64encode(r.content).decode()}))"
    )
    command: list[str | Path] = [python, "-c", script, f"http://{address}/v1", text]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WITHIN_S)
    return json.loads(done.stdout) if done.returncode == 0 else {"failed": done.stderr.strip()[-300:]}


def browser(out: Outcome, address: str, lists: dict, ear: Ear) -> None:
    """A conversation in Chromium, whose microphone is a spoken file."""
    folder = WORK / "browser"
    folder.mkdir(parents=True, exist_ok=True)
    asked = clear(lists["questions"], ear, 2)
    paths = [
        write_wave(folder / f"question-{index}.wav", question(one["text"], one["voice"]))
        for index, one in enumerate(asked)
    ]
    node = ROOT / "target/tools/python/bin/node"
    command: list[str | Path] = [node, ROOT / "tests/browser/conversation.mjs", f"http://{address}/", folder, *paths]
    environment = os.environ | {"REPARTEE_BETWEEN_S": "20"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WITHIN_S, env=environment)
    if done.returncode != 0:
        out.check("browser_conversation", False, done.stderr.strip()[-300:])
        return
    seen = json.loads(done.stdout)
    answers = [turn["answer"] for turn in seen["turns"]]
    right = [is_right(one["key"], answer) for one, answer in zip(asked, answers, strict=False)]
    pairs = []
    for turn in seen["turns"]:
        with wave.open(turn["recording"]) as file:
            sound = file.readframes(file.getnframes())
        pairs.append((turn["answer"], ear.hear_long(sound)))
    out.check("browser_answers_are_right", len(right) == len(asked) and all(right), str(answers))
    rate = word_errors(pairs).rate
    out.row("browser_wer_voice", rate, None, "", "the page's own sound, heard by faster-whisper")
    out.check("browser_answers_are_heard", rate <= 0.2, str(pairs))
