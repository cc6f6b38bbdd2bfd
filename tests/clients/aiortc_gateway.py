"""Calls as a telephone gateway does, with RTP made by hand over `aiortc`. Usage: aiortc_gateway.py ADDRESS QUESTION

Asks the question of a wav file, presses keys, then asks again under another SSRC, between packets of payload types that
nobody agreed on. Prints a line of JSON: the keys that the server reported, and the transcripts of its answers.
"""

import asyncio
import json
import re
import struct
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator

import av
from aiortc import RTCPeerConnection, RTCSessionDescription

RATE = 48_000
FRAME = 960
FRAME_S = FRAME / RATE
SILENCE_FRAMES = 60
# Only a defect runs into it.
PATIENCE_S = 60
COMFORT_NOISE, PCMU = 13, 0


def packets(path: str) -> Iterator[bytes]:
    """Returns the Opus packets of 20 ms of a wav file."""
    encoder = av.CodecContext.create("libopus", "w")
    encoder.sample_rate, encoder.layout, encoder.format = RATE, "mono", "s16"
    resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE, frame_size=FRAME)
    with av.open(path) as file:
        for frame in file.decode(audio=0):
            for piece in resampler.resample(frame):
                for packet in encoder.encode(piece):
                    yield bytes(packet)


class Gateway:
    """One call."""

    def __init__(self) -> None:
        """Creates a call that is not connected."""
        self.events: list[dict] = []
        self.connection = RTCPeerConnection()
        self.audio = self.connection.addTransceiver("audio", direction="sendrecv")
        self.channel = self.connection.createDataChannel("oai-events")
        self.channel.on("message", lambda message: self.events.append(json.loads(message)))
        self.ssrc, self.sequence, self.timestamp = 1, 65_500, 0xFFFF_F000
        self.opus = self.keys = 0

    async def connect(self, address: str) -> None:
        """Makes the call."""
        await self.connection.setLocalDescription(await self.connection.createOffer())
        # aiortc offers no telephone events.
        offer = re.sub(r"(m=audio [^\r]*)", r"\1 110", self.connection.localDescription.sdp, count=1)
        offer = offer.replace("a=rtpmap:96 ", "a=rtpmap:110 telephone-event/48000\r\na=rtpmap:96 ", 1)
        request = urllib.request.Request(
            f"http://{address}/v1/realtime/calls", offer.encode(), {"Content-Type": "application/sdp"}
        )
        answer = (await asyncio.to_thread(urllib.request.urlopen, request)).read().decode()
        self.opus = int(re.findall(r"a=rtpmap:(\d+) opus/", answer)[0])
        self.keys = int(re.findall(r"a=rtpmap:(\d+) telephone-event/48000", answer)[0])
        # Its parser wants the types that it has offered.
        known = re.sub(r"(m=audio [^\r]*) 110", r"\1", answer)
        known = re.sub(r"a=(rtpmap|fmtp):110 [^\r]*\r\n", "", known)
        await self.connection.setRemoteDescription(RTCSessionDescription(known, "answer"))
        await self.until(lambda: self.connection.connectionState == "connected" and self.events)

    async def until(self, condition: Callable[[], object]) -> None:
        """Waits for a condition."""
        end = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > end:
                sys.exit(f"nothing more comes: {[event['type'] for event in self.events]}")
            await asyncio.sleep(0.01)

    def of(self, kind: str) -> list[dict]:
        """Returns the events of a type."""
        return [event for event in self.events if event["type"] == kind]

    async def send(self, payload_type: int, payload: bytes, timestamp: int, is_lost: bool = False) -> None:
        """Sends a packet, or only counts it."""
        header = struct.pack("!BBHII", 0x80, payload_type, self.sequence & 0xFFFF, timestamp & 0xFFFF_FFFF, self.ssrc)
        self.sequence += 1
        if not is_lost:
            await self.audio.sender.transport._send_rtp(header + payload)

    async def speak(self, sound: list[bytes]) -> None:
        """Sends packets in real time, among others that are no sound, until an answer is complete."""
        answers = len(self.of("response.done"))
        begun = time.monotonic()
        for number, packet in enumerate(sound):
            await self.send(self.opus, packet, self.timestamp)
            if number % 3 == 0:
                await self.send(COMFORT_NOISE, b"\x40", self.timestamp)
                await self.send(PCMU, bytes(160), self.timestamp)
            self.timestamp += FRAME
            await asyncio.sleep(max(0, begun + (number + 1) * FRAME_S - time.monotonic()))
        await self.until(lambda: len(self.of("response.done")) > answers)

    async def press(self, event: int) -> None:
        """Presses a key for 100 ms; every second packet is lost."""
        for number in range(1, 6):
            payload = struct.pack("!BBH", event, 10, number * FRAME)
            await self.send(self.keys, payload, self.timestamp, is_lost=number % 2 == 1)
            await asyncio.sleep(FRAME_S)
        for _ in range(3):
            await self.send(self.keys, struct.pack("!BBH", event, 0x8A, 5 * FRAME), self.timestamp)
        self.timestamp += 5 * FRAME


async def main(address: str, question: str) -> None:
    """Makes the call and prints the report."""
    silence = bytes([0xF8, 0xFF, 0xFE])
    sound = [silence] * 10 + list(packets(question)) + [silence] * SILENCE_FRAMES
    gateway = Gateway()
    await gateway.connect(address)
    await gateway.speak(sound)
    for event in [1, 11, 11]:
        await gateway.press(event)
    await gateway.until(lambda: len(gateway.of("input_audio_buffer.dtmf_event_received")) >= 3)
    gateway.ssrc, gateway.sequence, gateway.timestamp = 2, 7, 99
    await gateway.speak(sound)
    keys = [event["event"] for event in gateway.of("input_audio_buffer.dtmf_event_received")]
    said = [event["transcript"] for event in gateway.of("response.output_audio_transcript.done")]
    errors = [event["error"]["message"] for event in gateway.of("error")]
    print(json.dumps({"keys": keys, "said": said, "errors": errors}))
    await gateway.connection.close()


asyncio.run(main(sys.argv[1], sys.argv[2]))
