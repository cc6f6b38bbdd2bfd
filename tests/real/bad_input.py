"""Bad input to the published models: texts, sounds and files. One sentence each, and nobody else is disturbed."""

import base64
import io
import json
import shutil
import subprocess
import urllib.error
import urllib.request
import wave
from pathlib import Path

import numpy as np

from common import WIRE_RATE, WORK, Outcome, is_right, pcm, questions
from peers import Ear, clear, models
from server import Caller, Server
from sounds import question

WITHIN_S = 120


def bad_input(out: Outcome, server: Server, binary: Path, ear: Ear) -> None:
    """Runs all checks; a good caller talks between them."""
    texts(out, server)
    sounds(out, server)
    one = clear(questions()["questions"], ear, 1)[0]
    with Caller(server.address) as caller:
        answer = caller.ask(question(one["text"], one["voice"])).transcript
    out.check("bad_input_disturbs_nobody", is_right(one["key"], answer), answer)
    files(out, binary)


def texts(out: Outcome, server: Server) -> None:
    """Texts that are hardly speech."""
    for name, text in [
        ("one_letter", "A"),
        ("emoji", "🎉🎉🎉"),
        ("other_alphabet", "Καλημέρα κόσμε"),
        ("number", "-5"),
    ]:
        try:
            sound = server.speech(text)
            out.check(f"text_{name}", len(sound) < 20 * 2 * WIRE_RATE, f"{len(sound)} bytes")
        except urllib.error.HTTPError as error:
            out.check(f"text_{name}", error.code == 400, f"{error.code}: {error.read()[:200]!r}")
    try:
        server.speech("a" * 100_000)
        out.check("text_of_100000_letters", False, "it was read")
    except urllib.error.HTTPError as error:
        said = json.loads(error.read())["error"]["message"]
        out.check("text_of_100000_letters", error.code in (400, 413) and "\n" not in said, f"{error.code}: {said}")


def sounds(out: Outcome, server: Server) -> None:
    """Sounds without words, sound that is clipped, and an hour of it."""
    rng, time = np.random.default_rng(7), np.arange(4 * WIRE_RATE) / WIRE_RATE
    chords = sum(np.sin(2 * np.pi * note * time) for note in (220.0, 277.2, 329.6, 440.0))
    music = 0.2 * chords * (0.6 + 0.4 * np.sin(2 * np.pi * 2 * time))
    for name, sound in [
        ("nothing", np.zeros(4 * WIRE_RATE)),
        ("noise", 0.05 * rng.standard_normal(4 * WIRE_RATE)),
        ("music", music),
    ]:
        with Caller(server.address, output_modalities=["text"], max_output_tokens=1) as caller:
            heard = caller.ask(pcm(sound)).heard
        out.check(f"sound_of_{name}", not any(letter.isalnum() for letter in heard), f"heard {heard!r}")
    one = questions()["questions"][1]
    clipped = np.frombuffer(question(one["text"], one["voice"]), "<i2").astype(np.float32) / 32768 * 12
    with Caller(server.address, output_modalities=["text"], max_output_tokens=1) as caller:
        heard = caller.ask(pcm(clipped)).heard
    out.check("sound_clipped", len(heard.split()) >= 3, f"heard {heard!r}")
    file = io.BytesIO()
    with wave.open(file, "wb") as hour:
        hour.setparams((1, 1, 8000, 0, "NONE", ""))
        hour.writeframes(bytes([128]) * (3600 * 8000))
    content = {
        "type": "input_audio",
        "input_audio": {"data": base64.b64encode(file.getvalue()).decode(), "format": "wav"},
    }
    body = json.dumps({"messages": [{"role": "user", "content": [content]}]}).encode()
    url = f"http://{server.address}/v1/chat/completions"
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=WITHIN_S):
            out.check("sound_of_an_hour", False, "it was answered")
    except urllib.error.HTTPError as error:
        out.check("sound_of_an_hour", error.code in (400, 413), f"{error.code}: {error.read()[:200]!r}")
    except (BrokenPipeError, ConnectionResetError, urllib.error.URLError) as error:
        # Refused by its length, before all of it was sent.
        out.check("sound_of_an_hour", True, str(error))


def files(out: Outcome, binary: Path) -> None:
    """Files that are no models, or others; each start fails with one sentence that names the file."""
    folder = WORK / "bad"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    gguf = models() / "smollm2-135m/smollm2-135m-instruct-q4_1.gguf"
    if not gguf.exists():
        subprocess.run(["python3", Path(__file__).parents[2] / "scripts/real-models.py", "smollm2-135m"], check=True)
    data = gguf.read_bytes()
    torn = folder / "torn.gguf"
    torn.write_bytes(data[: len(data) // 2])
    other = folder / "other.gguf"
    # A string of the same length in the place of the architecture's name.
    other.write_bytes(data.replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0lamma", 1))
    endless = folder / "endless.gguf"
    template = b"{% for message in messages %}"
    loop = b"{% for i in range(9**9) %}x  "
    assert len(template) == len(loop)
    endless.write_bytes(data.replace(template, loop, 1))
    hears, speaks = models() / "whisper-base", models() / "kokoro-82m/checkpoint"
    starts: list[tuple[str, list[str | Path], str]] = [
        ("torn_gguf", ["--model", torn], "torn.gguf"),
        ("other_architecture", ["--model", other], "lamma"),
        ("endless_template", ["--model", endless], "template"),
        ("a_voice_that_should_hear", ["--hear", speaks, "--think", gguf], "hear"),
        ("ears_that_should_speak", ["--think", gguf, "--speak", hears], "speak"),
        ("a_missing_folder", ["--model", folder / "none"], "none"),
    ]
    for name, words, names in starts:
        command: list[str | Path] = [binary, "serve", "--listen", "127.0.0.1:0", *words]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WITHIN_S)
        except subprocess.TimeoutExpired:
            out.check(f"start_with_{name}", False, f"it still ran after {WITHIN_S} s")
            continue
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        said = lines[-1] if lines else ""
        out.check(f"start_with_{name}", done.returncode != 0 and names in said, f"{done.returncode}: {said}")
