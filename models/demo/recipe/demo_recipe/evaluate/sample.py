"""`python -m demo_recipe.evaluate.sample OUT.opus`: how a model sounds, for people to hear. What `make sound-sample`
runs.

A WebRTC call asks the first question of each topic in the frozen list of the end-to-end tests. The Opus packets that
come back go into the file as they are: nothing is encoded again. Needs the Python of the stock clients.
"""

from __future__ import annotations

import argparse
import asyncio
import fractions
import json
import time
import urllib.request
import wave
from pathlib import Path
from typing import ClassVar

import aiortc.codecs.opus
import av
import numpy as np
from aiortc import MediaStreamTrack, RTCPeerConnection, RTCSessionDescription

from .gateway import Gateway

ROOT = Path(__file__).parents[5]
FRAME = 960  # samples of a packet at 48 kHz
CLOCK = fractions.Fraction(1, 48_000)
SILENCE = b"\xf8\xff\xfe"  # a packet of 20 ms without sound
PAUSE = 30  # packets between answers
LONGEST_S = 20
ANSWERED_WITHIN_S = 30
TAIL_S = 0.5  # what network and jitter buffer still hold when the server has played its last packet


class Microphone(MediaStreamTrack):
    """Plays what is put into it at 16 kHz, and silence otherwise."""

    kind = "audio"
    RATE = 16_000

    def __init__(self) -> None:
        super().__init__()
        self.waiting = bytearray()
        self._sent = 0
        self._begun: float | None = None

    async def recv(self) -> av.AudioFrame:
        if self._begun is None:
            self._begun = time.monotonic()
        await asyncio.sleep(max(0, self._begun + self._sent / self.RATE - time.monotonic()))
        size = self.RATE // 50
        sound = bytes(self.waiting[: 2 * size]).ljust(2 * size, b"\0")
        del self.waiting[: 2 * size]
        frame = av.AudioFrame.from_ndarray(np.frombuffer(sound, "<i2").reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate, frame.time_base, frame.pts = self.RATE, fractions.Fraction(1, self.RATE), self._sent
        self._sent += size
        return frame


class Packets(aiortc.codecs.opus.OpusDecoder):
    """Keeps what it decodes."""

    kept: ClassVar[list[tuple[int, bytes]]] = []  # timestamp and packet of one answer

    def decode(self, encoded_frame: aiortc.codecs.opus.JitterFrame) -> list[av.AudioFrame]:
        Packets.kept.append((encoded_frame.timestamp, encoded_frame.data))
        return super().decode(encoded_frame)


async def answers(address: str, questions: list[Path]) -> list[list[bytes]]:
    """The packets of each answer, as many answers as fit into `LONGEST_S`."""
    peer, microphone = RTCPeerConnection(), Microphone()
    played: asyncio.Queue[dict] = asyncio.Queue()
    drains = []

    async def drain(track: MediaStreamTrack) -> None:
        while True:
            await track.recv()

    peer.addTrack(microphone)
    peer.on("track", lambda track: drains.append(asyncio.create_task(drain(track))))
    channel, opened = peer.createDataChannel("oai-events"), asyncio.Event()
    channel.on("open", opened.set)
    channel.on("message", lambda message: played.put_nowait(json.loads(message)))
    await peer.setLocalDescription(await peer.createOffer())
    request = urllib.request.Request(
        f"http://{address}/v1/realtime/calls", peer.localDescription.sdp.encode(), {"content-type": "application/sdp"}
    )
    with await asyncio.to_thread(urllib.request.urlopen, request) as response:
        await peer.setRemoteDescription(RTCSessionDescription(response.read().decode(), "answer"))
    await asyncio.wait_for(opened.wait(), ANSWERED_WITHIN_S)
    spoken: list[list[bytes]] = []
    for question in questions:
        Packets.kept = []
        with wave.open(str(question)) as file:
            microphone.waiting += file.readframes(file.getnframes())
        async with asyncio.timeout(ANSWERED_WITHIN_S):
            while (event := await played.get())["type"] != "output_audio_buffer.stopped":
                if event["type"] == "error":
                    raise SystemExit(f"sample: the gateway says {event['error']['message']}")
                if event["type"] == "response.output_audio_transcript.done":
                    print(f"sample: {question.stem}: {event['transcript']}", flush=True)
        await asyncio.sleep(TAIL_S)
        packets = [data for _, data in sorted(Packets.kept)]
        # Packets without sound are a byte or two.
        loud = [at for at, data in enumerate(packets) if len(data) > 2]
        packets = packets[loud[0] : loud[-1] + 1] if loud else []
        if sum(map(len, spoken)) + PAUSE * len(spoken) + len(packets) > LONGEST_S * 50:
            break
        spoken.append(packets)
    await peer.close()
    for task in drains:
        task.cancel()
    return spoken


def write(path: Path, spoken: list[list[bytes]]) -> float:
    """An Ogg Opus file of the packets with pauses between the answers. Returns its seconds."""
    every = [packet for answer in spoken for packet in [*answer, *[SILENCE] * PAUSE]]
    with av.open(str(path), "w", format="ogg") as file:
        stream = file.add_stream("libopus", rate=48_000, layout="mono")
        stream.codec_context.open()  # its header; it encodes nothing
        for number, data in enumerate(every):
            packet = av.Packet(data)
            packet.stream, packet.time_base = stream, CLOCK
            packet.pts = packet.dts = number * FRAME
            packet.duration = FRAME
            file.mux(packet)
    return len(every) / 50


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m demo_recipe.evaluate.sample", description=__doc__.split("\n\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--gateway", type=Path, default=ROOT / "target/release/repartee", help="the binary to serve with"
    )
    parser.add_argument("--model", type=Path, default=ROOT / "models/demo", help="folder of the checkpoint")
    options = parser.parse_args()
    aiortc.codecs.OpusDecoder = Packets
    listed = json.loads((ROOT / "tests/questions/questions.json").read_text())
    first = {one["topic"]: one["file"] for one in reversed(listed)}
    questions = [ROOT / "tests/questions" / one["file"] for one in listed if first[one["topic"]] == one["file"]]
    with Gateway(options.gateway, options.model) as gateway:
        spoken = asyncio.run(answers(gateway.url.split("/")[2], questions))
    print(f"sample: {write(options.out, spoken):.1f} s of {len(spoken)} answers in {options.out}", flush=True)


if __name__ == "__main__":
    main()
