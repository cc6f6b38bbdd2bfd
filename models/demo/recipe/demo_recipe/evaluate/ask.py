"""A client of the gateway: one websocket session a conversation, push to talk."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

import numpy as np
from websockets.sync.client import ClientConnection, connect

from .conditions import WIRE_RATE

SLICE_BYTES = WIRE_RATE // 10 * 2  # 100 ms
ANSWERED_WITHIN_S = 120


@dataclass(frozen=True)
class Answer:
    """The gateway's answer to one turn."""

    transcript: str
    sound: np.ndarray  # f32 in -1..1, at WIRE_RATE

    @property
    def seconds(self) -> float:
        return len(self.sound) / WIRE_RATE


class RefusedError(RuntimeError):
    """The gateway said that it could not answer."""


def converse(url: str, turns: list[bytes]) -> list[Answer]:
    """Asks the turns one after the other in one session, as fast as they are answered."""
    with connect(url, max_size=None, open_timeout=30) as socket:
        expect(socket, "session.created")
        pcm = {"type": "audio/pcm", "rate": WIRE_RATE}
        audio = {"input": {"format": pcm, "turn_detection": None}, "output": {"format": pcm}}
        send(
            socket,
            {"type": "session.update", "session": {"type": "realtime", "output_modalities": ["audio"], "audio": audio}},
        )
        expect(socket, "session.updated")
        return [_ask(socket, turn) for turn in turns]


def _ask(socket: ClientConnection, turn: bytes) -> Answer:
    for start in range(0, len(turn), SLICE_BYTES):
        piece = base64.b64encode(turn[start : start + SLICE_BYTES]).decode()
        send(socket, {"type": "input_audio_buffer.append", "audio": piece})
    send(socket, {"type": "input_audio_buffer.commit"})
    send(socket, {"type": "response.create"})
    transcript, pcm = "", b""
    while (event := receive(socket))["type"] != "response.done":
        if event["type"] == "response.output_audio.delta":
            pcm += base64.b64decode(event["delta"])
        elif event["type"] == "response.output_audio_transcript.delta":
            transcript += event["delta"]
    status = event["response"]["status"]
    # An answer that was cut at its length limit is judged as it is.
    if status not in ("completed", "incomplete"):
        raise RefusedError(f"the answer is {status}: {event['response'].get('status_details')}")
    return Answer(transcript, np.frombuffer(pcm, "<i2").astype(np.float32) / 32768.0)


def expect(socket: ClientConnection, kind: str) -> None:
    """Reads up to an event of this type."""
    while receive(socket)["type"] != kind:
        pass


def receive(socket: ClientConnection) -> dict:
    """The next event; an `error` is raised."""
    try:
        event = json.loads(socket.recv(timeout=ANSWERED_WITHIN_S))
    except TimeoutError:
        raise RefusedError(f"the gateway said nothing for {ANSWERED_WITHIN_S} s") from None
    if event["type"] == "error":
        raise RefusedError(f"the gateway answered with an error: {event['error'].get('message')}")
    return event


def send(socket: ClientConnection, event: dict) -> None:
    """One event."""
    socket.send(json.dumps(event))
