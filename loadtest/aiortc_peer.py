"""A voice server made with the stock `aiortc`, for comparison: the cost of a WebRTC call without a model.

It answers `POST /v1/realtime/calls` and speaks so much of the Realtime API as the load generator needs. After 200 ms of
silence it commits the turn and plays two seconds of a tone, as `examples/canned.rs` does. Opus is set as the gateway
sets it: mono, 32 kbit/s, complexity 5, FEC. Needs the packages of tests/requirements-clients.txt.

Usage: aiortc_peer.py    Prints where it listens. GET /codec says how many seconds the Opus codec has taken.
"""

import asyncio
import fractions
import json
import math
import time
from collections.abc import Coroutine

import av
import numpy
from aiohttp import web
from aiortc import MediaStreamTrack, RTCDataChannel, RTCPeerConnection, RTCSessionDescription
from aiortc.codecs import opus
from aiortc.mediastreams import MediaStreamError

RATE = 48_000
FRAME = 960
FRAME_S = 0.02
TIME_BASE = fractions.Fraction(1, RATE)
# 2 s, at half of full scale.
ANSWER_FRAMES = 100
SILENT_FRAMES = 10
LOUD = 32_768 * 10 ** (-45 / 20)


class Codec:
    """The seconds that Opus has taken."""

    seconds = 0.0


class Encoder(opus.OpusEncoder):
    def __init__(self) -> None:
        self.codec = av.CodecContext.create("libopus", "w")
        self.codec.bit_rate = 32_000
        self.codec.format = "s16"
        self.codec.layout = "mono"
        self.codec.sample_rate = RATE
        self.codec.time_base = TIME_BASE
        self.codec.options = {"application": "voip", "compression_level": "5", "fec": "1", "packet_loss": "10"}

    def encode(self, frame: av.AudioFrame, force_keyframe: bool = False) -> tuple[list[bytes], int]:
        begun = time.perf_counter()
        packets = [bytes(packet) for packet in self.codec.encode(frame)]
        Codec.seconds += time.perf_counter() - begun
        return packets, frame.pts


class Decoder(opus.OpusDecoder):
    def __init__(self) -> None:
        super().__init__()
        self.codec = av.CodecContext.create("libopus", "r")
        self.codec.format = "s16"
        self.codec.layout = "mono"
        self.codec.sample_rate = RATE

    def decode(self, encoded_frame: opus.JitterFrame) -> list[av.AudioFrame]:
        begun = time.perf_counter()
        frames = super().decode(encoded_frame)
        Codec.seconds += time.perf_counter() - begun
        return frames


class Voice(MediaStreamTrack):
    """Sends nothing until it is asked to speak, then a rising tone in real time."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self._begun = time.monotonic()
        self._left = 0
        self._due = 0.0
        self._asked = asyncio.Event()
        self.silent = asyncio.Event()

    def speak(self) -> None:
        self._left, self._due = ANSWER_FRAMES, time.monotonic()
        self.silent.clear()
        self._asked.set()

    async def recv(self) -> av.AudioFrame:
        if not self._left:
            self.silent.set()
            self._asked.clear()
            await self._asked.wait()
        await asyncio.sleep(max(0.0, self._due - time.monotonic()))
        # Time stamps follow the clock, so that they skip silence.
        pts = round((self._due - self._begun) / FRAME_S) * FRAME
        self._due += FRAME_S
        index = ANSWER_FRAMES - self._left
        self._left -= 1
        frame = av.AudioFrame.from_ndarray(TONE[:, index * FRAME : (index + 1) * FRAME], format="s16", layout="mono")
        frame.sample_rate, frame.time_base, frame.pts = RATE, TIME_BASE, pts
        return frame


def tone() -> numpy.ndarray:
    seconds = numpy.arange(ANSWER_FRAMES * FRAME) / RATE
    return (16_000 * numpy.sin(2 * math.pi * seconds * (400 + seconds * 400))).astype("<i2").reshape(1, -1)


TONE = tone()


# The event loop itself keeps only weak references to its tasks.
tasks: set[asyncio.Task] = set()


def start(work: Coroutine) -> None:
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


async def listen(track: MediaStreamTrack, voice: Voice, channel: asyncio.Future) -> None:
    """Ends a turn after silence, and answers it."""
    heard, silent = False, 0
    while True:
        try:
            frame = await track.recv()
        except MediaStreamError:
            return
        sound = frame.to_ndarray().astype(numpy.float32)
        loud = math.sqrt(float(numpy.mean(sound * sound))) > LOUD
        heard, silent = heard or loud, 0 if loud else silent + 1
        if heard and silent == SILENT_FRAMES and voice.silent.is_set():
            heard = False
            start(answer(voice, await channel))


async def answer(voice: Voice, channel: RTCDataChannel) -> None:
    def send(event: dict) -> None:
        channel.send(json.dumps(event))

    send({"type": "input_audio_buffer.committed", "item_id": "item_1"})
    voice.speak()
    await voice.silent.wait()
    send({"type": "response.done", "response": {"id": "resp_1", "status": "completed"}})
    send({"type": "output_audio_buffer.stopped", "response_id": "resp_1"})


async def call(request: web.Request) -> web.Response:
    peer = RTCPeerConnection()
    request.app["peers"].add(peer)
    voice, channel = Voice(), asyncio.get_running_loop().create_future()

    @peer.on("datachannel")
    def opened(opened: RTCDataChannel) -> None:
        channel.set_result(opened)

        @opened.on("message")
        def message(text: str) -> None:
            if json.loads(text)["type"] == "session.update":
                opened.send(json.dumps({"type": "session.updated", "session": {}}))

        opened.send(json.dumps({"type": "session.created", "session": {}}))

    @peer.on("track")
    def received(track: MediaStreamTrack) -> None:
        start(listen(track, voice, channel))

    @peer.on("connectionstatechange")
    async def changed() -> None:
        if peer.connectionState in {"failed", "closed", "disconnected"}:
            request.app["peers"].discard(peer)
            await peer.close()

    await peer.setRemoteDescription(RTCSessionDescription(await request.text(), "offer"))
    peer.addTrack(voice)
    await peer.setLocalDescription(await peer.createAnswer())
    return web.Response(status=201, text=peer.localDescription.sdp, content_type="application/sdp")


async def codec(_: web.Request) -> web.Response:
    return web.json_response({"seconds": Codec.seconds})


async def main() -> None:
    # aiortc looks its codecs up by name.
    import aiortc.codecs as codecs

    codecs.OpusEncoder, codecs.OpusDecoder = Encoder, Decoder
    app = web.Application()
    app["peers"] = set()
    app.router.add_post("/v1/realtime/calls", call)
    app.router.add_get("/codec", codec)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(f"Talk to it at http://127.0.0.1:{runner.addresses[0][1]}/", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
