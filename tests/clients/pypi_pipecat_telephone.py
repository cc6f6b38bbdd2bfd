"""Calls over media streams as a provider does, with the sound coded by the stock serializer of `pipecat-ai` for Twilio.

Usage: pypi_pipecat_telephone.py ADDRESS SCENARIO

Says the first turn of the scenario in real time, listens to the answer until its last mark, interrupts the next answer
with its second turn, and hangs up. The serializer writes the sound that goes to the server, and reads the sound that
comes back. Prints {"client", "heard_ms": sound of the first answer, "loud_ms": of it what is audible, "marks": marks of
it, "cleared": whether the interruption cleared the sound at the provider}.
"""

import array
import asyncio
import json
from importlib.metadata import version
from typing import Any

import websockets
from pipecat.frames.frames import InputAudioRawFrame, OutputAudioRawFrame
from pipecat.serializers.twilio import TwilioFrameSerializer

from scenario import Scenario, arguments

STREAM, CALL = "MZ00000000000000000000000000000000", "CA00000000000000000000000000000000"
FORMAT = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}
WITHIN_S = 60
# Level above which a sample is audible.
AUDIBLE = 300


class Provider:
    """One call: sends sound and marks, and keeps what comes."""

    def __init__(self, socket: Any, rate: int) -> None:
        self._socket = socket
        self._rate = rate
        params = TwilioFrameSerializer.InputParams(auto_hang_up=False, sample_rate=8000)
        self._coder = TwilioFrameSerializer(STREAM, CALL, params=params)
        self._coder._sample_rate = 8000  # what setup() takes from a pipeline
        self.samples = array.array("h")
        self.marks = 0
        self.cleared = asyncio.Event()
        self.marked = asyncio.Event()

    async def send(self, **message: object) -> None:
        await self._socket.send(json.dumps({"streamSid": STREAM, **message}))

    async def begin(self) -> None:
        await self.send(event="connected", protocol="Call", version="1.0.0")
        start: dict[str, object] = {"streamSid": STREAM, "accountSid": "AC0", "callSid": CALL, "tracks": ["inbound"]}
        start |= {"mediaFormat": FORMAT, "customParameters": {"instructions": "Be brief."}}
        await self.send(event="start", sequenceNumber="1", start=start)

    async def say(self, scenario: Scenario, index: int) -> None:
        async for piece in scenario.pieces(scenario.turns[index], pace=1):
            frame = OutputAudioRawFrame(audio=piece, sample_rate=self._rate, num_channels=1)
            message = await self._coder.serialize(frame)
            if message is not None:
                await self._socket.send(message)

    async def listen(self) -> None:
        """Reads to the end of the call. A provider returns a mark once its sound has played; here that is at once."""
        async for message in self._socket:
            event = json.loads(message)
            assert event["streamSid"] == STREAM, event
            if event["event"] == "media":
                frame = await self._coder.deserialize(message)
                assert isinstance(frame, InputAudioRawFrame), event
                self.samples.frombytes(frame.audio)
            elif event["event"] == "mark":
                self.marks += 1
                await self.send(event="mark", mark=event["mark"])
                self.marked.set()
            elif event["event"] == "clear":
                self.cleared.set()

    async def silence(self) -> None:
        """Waits until no mark has come for a second."""
        while True:
            self.marked.clear()
            try:
                await asyncio.wait_for(self.marked.wait(), 1)
            except TimeoutError:
                return


async def call(address: str, scenario: Scenario) -> dict:
    headers = {"Authorization": f"Bearer {scenario.key}"}
    url = f"ws://{address}/v1/telephony/media-stream"
    async with websockets.connect(url, additional_headers=headers, max_size=None) as socket:
        provider = Provider(socket, scenario.rate)
        await provider.begin()
        listening = asyncio.create_task(provider.listen())
        await provider.say(scenario, 0)
        await provider.marked.wait()
        await provider.silence()
        heard, marks = len(provider.samples), provider.marks
        loud = sum(abs(sample) > AUDIBLE for sample in provider.samples)
        provider.marked.clear()
        await provider.say(scenario, 1)
        await provider.marked.wait()
        await provider.say(scenario, 0)
        await provider.cleared.wait()
        await provider.send(event="stop", stop={"accountSid": "AC0", "callSid": CALL})
        await listening
    client = f"pipecat-ai {version('pipecat-ai')}"
    return {"client": client, "heard_ms": heard / 8, "loud_ms": loud / 8, "marks": marks, "cleared": True}


if __name__ == "__main__":
    address, scenario = arguments()
    print(json.dumps(asyncio.run(asyncio.wait_for(call(address, scenario), WITHIN_S))))
