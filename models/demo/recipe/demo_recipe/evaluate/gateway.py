"""The gateway under judgement: a process of its own on a free port of this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

READY_WITHIN_S = 120
STOPPED_WITHIN_S = 15


class Gateway:
    """A context in which the gateway answers at `url`."""

    def __init__(self, binary: Path, model: Path, settings: Sequence[str] = ()) -> None:
        if not os.access(binary, os.X_OK):
            raise SystemExit(f"there is no gateway at {binary}: cargo build --release -p repartee")
        if not (model / "config.json").exists():
            raise SystemExit(f"{model} is not a checkpoint's folder: it has no config.json")
        self._command = [str(binary), "serve", "--model", str(model)]
        for setting in settings:
            self._command += ["--set", setting]

    def __enter__(self) -> Gateway:
        address = f"127.0.0.1:{free_port()}"
        self.url = f"ws://{address}/v1/realtime?model=repartee"
        self._log = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen([*self._command, "--listen", address], stdout=self._log, stderr=self._log)
        deadline = time.monotonic() + READY_WITHIN_S
        while not answers(f"http://{address}/readyz"):
            if self._process.poll() is not None:
                raise SystemExit(f"the gateway stopped with {self._process.returncode}:\n{self.log()}")
            if time.monotonic() > deadline:
                self.__exit__()
                raise SystemExit(f"the gateway was not ready within {READY_WITHIN_S} s:\n{self.log()}")
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def log(self) -> str:
        """The end of what it wrote."""
        self._log.seek(0)
        return self._log.read()[-4000:]

    def processor_seconds(self) -> float:
        """Processor time used so far, all threads together, in steps of 10 ms."""
        stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        # The second field is the program's name in brackets and may hold spaces.
        fields = stat.rpartition(")")[2].split()
        user, system = int(fields[11]), int(fields[12])
        return (user + system) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(url: str) -> bool:
    """True if a request succeeds."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False
