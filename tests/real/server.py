"""The server of `make run-real` as a process of its own, and a caller of its websocket."""

import base64
import contextlib
import json
import os
import queue
import re
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from common import ROOT, WIRE_RATE

READY_WITHIN_S = 1800.0
ANSWERED_WITHIN_S = 180.0
PIECE_S = 0.1


class Server:
    """Serves the models of `scripts/run-real.sh` on a free port while the context is open."""

    def __init__(self, binary: Path, *settings: str, **environment: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        command = [str(ROOT / "scripts/run-real.sh"), str(binary), "--listen", self.address]
        command += [word for setting in settings for word in ("--set", setting)]
        self._command, self._environment = command, os.environ | environment
        self.start_s = float("nan")

    def __enter__(self) -> "Server":
        self._log, self._begun = tempfile.TemporaryFile("w+"), time.monotonic()
        self.process = subprocess.Popen(self._command, stdout=self._log, stderr=self._log, env=self._environment)
        while not self._is_ready():
            if self.process.poll() is not None or time.monotonic() - self._begun > READY_WITHIN_S:
                self.__exit__(None, None, None)
                raise SystemExit(f"the server does not start:\n{self.log()}")
            time.sleep(0.05)
        self.start_s = time.monotonic() - self._begun
        return self

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.address}/readyz", timeout=5) as reply:
                return reply.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def log(self) -> str:
        """The end of what it wrote."""
        self._log.seek(0)
        return self._log.read()[-4000:]

    def mib(self, field: str = "VmRSS") -> float:
        """Memory in MiB: `VmRSS` now, `VmHWM` at most."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)
        return int(found[1]) / 1024 if found else float("nan")

    def speech(self, text: str, voice: str = "af_heart", pieces: list[str] | None = None) -> bytes:
        """Has a text read aloud: as one JSON object, or as `pieces` that stream in. 16-bit PCM at 24 kHz."""
        url = f"http://{self.address}/v1/audio/speech"
        if pieces is None:
            asked = {"model": "any", "voice": voice, "input": text, "response_format": "pcm"}
            body: Any = json.dumps(asked).encode()
            kind = "application/json"
        else:
            url += f"?response_format=pcm&voice={voice}"
            body, kind = (piece.encode() for piece in pieces), "text/plain"
        request = urllib.request.Request(url, body, {"content-type": kind}, method="POST")
        with urllib.request.urlopen(request, timeout=ANSWERED_WITHIN_S) as reply:
            return reply.read()


class RefusedError(RuntimeError):
    """The server answered with an error."""


@dataclass
class Turn:
    """One answered turn; times in seconds of the monotonic clock, by the type of the first event of each kind."""

    heard: str = ""
    transcript: str = ""
    sound: bytes = b""
    status: str = ""
    items: dict[str, str] = field(default_factory=dict)
    calls: list[dict] = field(default_factory=list)
    first: dict[str, float] = field(default_factory=dict)
    last: float = float("nan")


class Caller:
    """A websocket session. Without `turns` it commits its own turns, with it the server finds their ends."""

    def __init__(self, address: str, turns: dict | None = None, **session: Any) -> None:
        self._socket = connect(f"ws://{address}/v1/realtime?model=any", max_size=None, open_timeout=60)
        self._events: queue.Queue[tuple[float, dict]] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        pcm = {"type": "audio/pcm", "rate": WIRE_RATE}
        hears = {"format": pcm, "turn_detection": turns, "transcription": {"model": "any", "language": "en"}}
        audio = {"input": hears, "output": {"format": pcm}}
        self.created = self.until("session.created")["session"]
        self.send("session.update", session={"type": "realtime", "audio": audio} | session)
        self.until("session.updated")

    def __enter__(self) -> "Caller":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _listen(self) -> None:
        try:
            for message in self._socket:
                self._events.put((time.monotonic(), json.loads(message)))
        except ConnectionClosed:
            pass

    def send(self, kind: str, **fields: Any) -> None:
        """Sends one event."""
        self._socket.send(json.dumps({"type": kind} | fields))

    def next(self) -> tuple[float, dict]:
        """Time and next event; an `error` is raised."""
        try:
            at, event = self._events.get(timeout=ANSWERED_WITHIN_S)
        except queue.Empty:
            raise RefusedError(f"nothing came for {ANSWERED_WITHIN_S:.0f} s") from None
        if event["type"] == "error":
            raise RefusedError(event["error"]["message"])
        return at, event

    def until(self, kind: str) -> dict:
        """The next event of a type; the others before it are dropped."""
        while (found := self.next()[1])["type"] != kind:
            pass
        return found

    def say(self, sound: bytes, pace: float = 0.0) -> float:
        """Sends sound, with `pace` 1 in real time; returns the time of its end."""
        size, begun = int(WIRE_RATE * PIECE_S) * 2, time.monotonic()
        for start in range(0, len(sound), size):
            self.send("input_audio_buffer.append", audio=base64.b64encode(sound[start : start + size]).decode())
            due = begun + (start + size) / 2 / WIRE_RATE * pace
            time.sleep(max(0.0, due - time.monotonic()))
        return time.monotonic()

    def keep_silent(self) -> None:
        """Sends silence in real time until the connection ends."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                self.say(bytes(WIRE_RATE * 2), pace=1.0)

    def ask(self, sound: bytes) -> Turn:
        """Speaks a turn, commits it, and waits for its answer."""
        self.say(sound)
        self.send("input_audio_buffer.commit")
        self.send("response.create")
        return self.answer(lambda turn: bool(turn.status) and ("heard" in turn.first))

    def answer(self, is_enough: Callable[[Turn], bool] = lambda turn: bool(turn.status)) -> Turn:
        """Reads the events of one answer until it `is_enough`."""
        turn = Turn()
        while not is_enough(turn):
            at, event = self.next()
            kind = event["type"]
            turn.first.setdefault(kind, at)
            turn.last = at
            match kind:
                case "conversation.item.input_audio_transcription.completed":
                    turn.heard += event["transcript"]
                    turn.first["heard"] = at
                case "response.output_audio_transcript.delta":
                    turn.transcript += event["delta"]
                case "response.output_audio.delta":
                    turn.sound += base64.b64decode(event["delta"])
                case "response.output_item.added":
                    turn.items[event["item"]["type"]] = event["item"]["id"]
                case "response.done":
                    turn.status = event["response"]["status"]
                    turn.calls += [item for item in event["response"]["output"] if item["type"] == "function_call"]
        return turn
