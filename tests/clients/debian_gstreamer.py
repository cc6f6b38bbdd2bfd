"""Goes through a scenario as GStreamer's `webrtcbin`, over libnice. Usage: debian_gstreamer.py ADDRESS SCENARIO

Runs with Debian's own Python, which has the bindings (scripts/setup.sh tests). One transport carries all
(`max-bundle`), so the offer has a bundle-only section. GStreamer's threads hand events and sound to the script's loop.
"""

import asyncio
import json
import time
import urllib.request

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstWebRTC", "1.0")
gi.require_version("GstSdp", "1.0")
from gi.repository import Gst, GstSdp, GstWebRTC  # noqa: E402

from scenario import Answer, Scenario, arguments  # noqa: E402

FRAME_S = 0.02
# Delay of the network and the jitter buffer after the server's last packet.
TAIL_S = 0.5
SEND = (
    "webrtcbin name=peer bundle-policy=max-bundle latency=60 "
    "appsrc name=microphone is-live=true format=time do-timestamp=true "
    "caps=audio/x-raw,format=S16LE,layout=interleaved,rate={rate},channels=1 ! queue ! audioconvert ! audioresample ! "
    "audio/x-raw,rate=48000 ! opusenc audio-type=voice ! rtpopuspay pt=97 ! "
    "application/x-rtp,media=audio,encoding-name=OPUS,payload=97 ! peer."
)
RECEIVE = (
    "rtpopusdepay ! opusdec ! audioconvert ! audioresample ! "
    "audio/x-raw,format=S16LE,layout=interleaved,rate={rate},channels=1 ! appsink name=ear emit-signals=true sync=false"
)


class Call:
    """One call and its results."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._loop = asyncio.get_running_loop()
        self._answer: Answer | None = None
        self.ready = asyncio.Event()
        self.waiting = bytearray()
        self.pipeline = Gst.parse_launch(SEND.format(rate=scenario.rate))
        self.peer = self.pipeline.get_by_name("peer")
        self.microphone = self.pipeline.get_by_name("microphone")
        self.peer.connect("pad-added", self._receive)
        self.pipeline.set_state(Gst.State.READY)
        self.channel = self.peer.emit("create-data-channel", "oai-events", None)
        self.channel.connect("on-message-string", self._message)
        self.channel.connect("on-open", lambda channel: channel.emit("send-string", json.dumps(UPDATE)))

    def _message(self, _channel: object, text: str) -> None:
        self._loop.call_soon_threadsafe(self._heard, json.loads(text))

    def _heard(self, event: dict) -> None:
        self._scenario.events.append(event)
        match event["type"]:
            case "session.updated":
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

    def _receive(self, _peer: object, pad: Gst.Pad) -> None:
        if pad.direction != Gst.PadDirection.SRC:
            return
        ear = Gst.parse_bin_from_description(RECEIVE.format(rate=self._scenario.rate), True)
        self.pipeline.add(ear)
        ear.get_by_name("ear").connect("new-sample", self._sample)
        ear.sync_state_with_parent()
        pad.link(ear.get_static_pad("sink"))

    def _sample(self, sink: Gst.Element) -> Gst.FlowReturn:
        buffer = sink.emit("pull-sample").get_buffer()
        self._loop.call_soon_threadsafe(self._sounded, buffer.extract_dup(0, buffer.get_size()))
        return Gst.FlowReturn.OK

    def _sounded(self, sound: bytes) -> None:
        if self._answer is not None:
            self._answer.sound += sound

    async def speak(self) -> None:
        """Plays queued audio, and silence otherwise."""
        size = int(self._scenario.rate * FRAME_S) * 2
        due = time.monotonic()
        while True:
            sound = bytes(self.waiting[:size]).ljust(size, b"\0")
            del self.waiting[:size]
            self.microphone.emit("push-buffer", Gst.Buffer.new_wrapped(sound))
            due += FRAME_S
            await asyncio.sleep(max(0, due - time.monotonic()))

    def offer(self) -> str:
        """Makes the offer."""
        promise = Gst.Promise.new()
        self.peer.emit("create-offer", None, promise)
        promise.wait()
        # The reply owns the offer.
        reply = promise.get_reply()
        offer = reply.get_value("offer")
        text = offer.sdp.as_text()
        self._describe("set-local-description", offer)
        return text

    def accept(self, answer: str) -> None:
        """Connects with the answer."""
        _, sdp = GstSdp.SDPMessage.new_from_text(answer)
        kind = GstWebRTC.WebRTCSDPType.ANSWER
        self._describe("set-remote-description", GstWebRTC.WebRTCSessionDescription.new(kind, sdp))

    def _describe(self, signal: str, description: GstWebRTC.WebRTCSessionDescription) -> None:
        promise = Gst.Promise.new()
        self.peer.emit(signal, description, promise)
        promise.wait()
        reply = promise.get_reply()
        if reply is not None and reply.has_field("error"):
            raise SystemExit(f"{signal}: {reply.to_string()}")


UPDATE = {"type": "session.update", "session": {"type": "realtime", "instructions": "Be brief."}}


def post(address: str, key: str, offer: str) -> str:
    """Hands the offer over and returns the answer."""
    headers = {"Content-Type": "application/sdp", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"http://{address}/v1/realtime/calls", data=offer.encode(), headers=headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.read().decode()


async def talk(address: str, scenario: Scenario) -> None:
    call = Call(scenario)
    negotiate = asyncio.Event()
    loop = asyncio.get_running_loop()
    call.peer.connect("on-negotiation-needed", lambda _peer: loop.call_soon_threadsafe(negotiate.set))
    call.pipeline.set_state(Gst.State.PLAYING)
    speaking = asyncio.create_task(call.speak())
    await asyncio.wait_for(negotiate.wait(), 20)
    offer = await asyncio.to_thread(call.offer)
    if "a=bundle-only" not in offer:
        raise SystemExit(f"no bundle-only section: {offer}")
    answer = await asyncio.to_thread(post, address, scenario.key, offer)
    await asyncio.to_thread(call.accept, answer)
    await asyncio.wait_for(call.ready.wait(), 20)
    for index, turn in enumerate(scenario.turns):
        async for piece in scenario.pieces(turn):
            call.waiting += piece
        await scenario.answered(index)
    await asyncio.sleep(TAIL_S)
    speaking.cancel()
    call.pipeline.set_state(Gst.State.NULL)


if __name__ == "__main__":
    Gst.init(None)
    address, scenario = arguments()
    asyncio.run(talk(address, scenario))
    nice = Gst.ElementFactory.find("nicesrc").get_plugin().get_version()
    scenario.report_as(f"{Gst.version_string()} webrtcbin, libnice {nice}")
