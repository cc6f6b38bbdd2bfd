"""Goes through a scenario as a WebRTC peer made with the stock `aiortc`. Usage: pypi_aiortc.py ADDRESS SCENARIO

The call is made and hung up with the stock `openai` client. Sound goes over the tracks in real time, events over the
data channel; the server's playout clock says what was played.
"""

import asyncio
import fractions
import json
import time

import av
import numpy
from aiortc import MediaStreamTrack, RTCPeerConnection, RTCSessionDescription
from openai import AsyncOpenAI

from scenario import Answer, Scenario, arguments

INSTRUCTIONS = "Be brief."
FRAME_S = 0.02
# Delay of the network and the jitter buffer after the server's last packet.
TAIL_S = 0.5


class Microphone(MediaStreamTrack):
    """Plays queued audio, and silence otherwise."""

    kind = "audio"

    def __init__(self, rate: int) -> None:
        super().__init__()
        self._rate = rate
        self._samples = int(rate * FRAME_S)
        self._sent = 0
        self._begun: float | None = None
        self.waiting = bytearray()

    async def recv(self) -> av.AudioFrame:
        self._begun = self._begun or time.monotonic()
        await asyncio.sleep(max(0, self._begun + self._sent / self._rate - time.monotonic()))
        size = self._samples * 2
        sound = bytes(self.waiting[:size]).ljust(size, b"\0")
        del self.waiting[:size]
        frame = av.AudioFrame.from_ndarray(numpy.frombuffer(sound, "<i2").reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate, frame.time_base = self._rate, fractions.Fraction(1, self._rate)
        frame.pts = self._sent
        self._sent += self._samples
        return frame


class Call:
    """One call and its results."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._answer: Answer | None = None
        self.ready = asyncio.Event()

    def heard(self, message: str) -> None:
        event = json.loads(message)
        self._scenario.events.append(event)
        match event["type"]:
            case "session.updated":
                if event["session"]["instructions"] != INSTRUCTIONS:
                    self._scenario.errors.append("the session is not as the call was made with")
                self.ready.set()
            case "error":
                self._scenario.errors.append(event["error"]["message"])
            case "response.created":
                self._answer = self._scenario.answer(event["response"]["id"])
                self._answer.ended = False
            case "response.output_audio_transcript.delta":
                self._scenario.answer(event["response_id"]).transcript += event["delta"]
            case "response.done":
                self._scenario.answer(event["response"]["id"]).made = True
            case "output_audio_buffer.started":
                self._scenario.answer(event["response_id"]).began = time.monotonic()
            case "output_audio_buffer.stopped":
                self._scenario.answer(event["response_id"]).ended = True
            case "output_audio_buffer.cleared":
                self._scenario.stopped(self._scenario.answer(event["response_id"]))

    async def listen(self, track: MediaStreamTrack) -> None:
        resampler = av.AudioResampler(format="s16", layout="mono", rate=self._scenario.rate)
        answer, due = None, None
        while True:
            frame = await track.recv()
            # The jitter buffer holds the last packets back until others come, so audio without a gap belongs to the
            # answer before.
            if frame.pts != due:
                answer = self._answer
            due = frame.pts + frame.samples
            for resampled in resampler.resample(frame):
                if answer is not None:
                    answer.sound += resampled.to_ndarray().astype("<i2").tobytes()


async def talk(address: str, scenario: Scenario) -> None:
    peer, call, microphone = RTCPeerConnection(), Call(scenario), Microphone(scenario.rate)
    listening: list[asyncio.Task] = []
    peer.addTrack(microphone)
    peer.on("track", lambda track: listening.append(asyncio.create_task(call.listen(track))))
    channel = peer.createDataChannel("oai-events")
    channel.on("message", call.heard)
    session = {"type": "realtime", "instructions": "Be brief.", "audio": {"output": {"voice": "marin"}}}
    channel.on("open", lambda: channel.send(json.dumps({"type": "session.update", "session": {"type": "realtime"}})))
    await peer.setLocalDescription(await peer.createOffer())
    # The stock client hands the offer over, in a form with the session's configuration.
    client = AsyncOpenAI(base_url=f"http://{address}/v1", api_key=scenario.key, max_retries=0)
    session = {"type": "realtime", "instructions": INSTRUCTIONS, "audio": {"output": {"voice": "marin"}}}
    offer = peer.localDescription.sdp
    answer = await client.realtime.calls.with_raw_response.create(sdp=offer, session=session)
    call_id = answer.headers["location"].rsplit("/", 1)[-1]
    await peer.setRemoteDescription(RTCSessionDescription(answer.text, "answer"))
    await asyncio.wait_for(call.ready.wait(), 20)
    for index, turn in enumerate(scenario.turns):
        async for piece in scenario.pieces(turn):
            microphone.waiting += piece
        await scenario.answered(index)
    await asyncio.sleep(TAIL_S)
    await client.realtime.calls.hangup(call_id)
    await peer.close()
    for task in listening:
        task.cancel()


if __name__ == "__main__":
    address, scenario = arguments()
    asyncio.run(talk(address, scenario))
    scenario.report("aiortc")
