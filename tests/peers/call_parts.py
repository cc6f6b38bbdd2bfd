"""Times the parts of a call in aiortc, with the same kind of sound and setting as `make bench-call` uses for ours.

Prints, as JSON, microseconds a packet of 20 ms: the median of fifteen runs over all packets, after a warm-up. Needs
the packages of tests/requirements-clients.txt.

Usage: call_parts.py FILE.wav..
"""

import fractions
import json
import socket
import statistics
import sys
import time
from collections.abc import Callable

import aiortc
import av
from aiortc.codecs import opus
from aiortc.jitterbuffer import JitterBuffer, JitterFrame
from aiortc.rtp import RtpPacket
from pylibsrtp import Policy, Session

REPEATS = 15
RATE = 48_000
FRAME = 960
BURST = 32
# Key and salt of AEAD_AES_128_GCM.
KEY = bytes([7] * 16 + [8] * 12)


def each(packets: int, run: Callable[[], object]) -> float:
    """Returns the microseconds of a packet in the median run."""
    run()
    times = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return statistics.median(times) / packets * 1e6


def frames_of(paths: list[str]) -> list[av.AudioFrame]:
    """Returns frames of 20 ms at 48 kHz, mono, of 16 bits."""
    resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE, frame_size=FRAME)
    frames: list[av.AudioFrame] = []
    for path in paths:
        with av.open(path) as container:
            for frame in container.decode(audio=0):
                frame.pts = None
                frames += resampler.resample(frame)
    whole = [frame for frame in frames if frame.samples == FRAME]
    for number, frame in enumerate(whole):
        frame.pts = number * FRAME
        frame.time_base = fractions.Fraction(1, RATE)
    return whole


def encoder() -> opus.OpusEncoder:
    """Returns aiortc's encoder, set as the gateway sets its own."""
    made = opus.OpusEncoder()
    made.codec = av.CodecContext.create("libopus", "w")
    made.codec.bit_rate = 32_000
    made.codec.format = "s16"
    made.codec.layout = "mono"
    made.codec.sample_rate = RATE
    made.codec.time_base = fractions.Fraction(1, RATE)
    made.codec.options = {"application": "voip", "compression_level": "6"}
    made.resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE, frame_size=FRAME)
    return made


def session(direction: int) -> Session:
    """Returns an SRTP session of one direction."""
    profile = Policy.SRTP_PROFILE_AEAD_AES_128_GCM
    return Session(policy=Policy(key=KEY, ssrc_type=direction, srtp_profile=profile))


def sockets(datagrams: list[bytes]) -> tuple[float, float]:
    """Returns the microseconds of sending and of receiving a datagram."""
    sender, receiver = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    receiver.bind(("127.0.0.1", 0))
    receiver.settimeout(1.0)
    sender.connect(receiver.getsockname())
    sent, received = [], []
    for _ in range(REPEATS):
        sending = receiving = 0.0
        for at in range(0, len(datagrams), BURST):
            burst = datagrams[at : at + BURST]
            begun = time.perf_counter()
            for datagram in burst:
                sender.send(datagram)
            middle = time.perf_counter()
            for _ in burst:
                receiver.recv(2_048)
            sending += middle - begun
            receiving += time.perf_counter() - middle
        sent.append(sending)
        received.append(receiving)
    count = len(datagrams)
    return statistics.median(sent) / count * 1e6, statistics.median(received) / count * 1e6


def main() -> None:
    frames = frames_of(sys.argv[1:])

    def encode() -> list[bytes]:
        # Python's frames keep no state of an encoder.
        made = encoder()
        return [packet for frame in frames for packet in made.encode(frame)[0]]

    payloads = encode()
    rtp = [
        RtpPacket(payload_type=111, sequence_number=number, timestamp=number * FRAME, ssrc=1, payload=payload)
        for number, payload in enumerate(payloads)
    ]
    plain = [packet.serialize() for packet in rtp]

    def encrypt() -> list[bytes]:
        sender = session(Policy.SSRC_ANY_OUTBOUND)
        return [sender.protect(packet) for packet in plain]

    encrypted = encrypt()

    def decrypt() -> list[bytes]:
        receiver = session(Policy.SSRC_ANY_INBOUND)
        return [receiver.unprotect(packet) for packet in encrypted]

    if decrypt() != plain:
        sys.exit("a packet is not what it was")

    def buffer() -> None:
        jitter = JitterBuffer(capacity=16, prefetch=4)
        for packet in plain:
            parsed = RtpPacket.parse(packet)
            parsed._data = parsed.payload  # aiortc's receiver sets it before the buffer
            jitter.add(parsed)

    def decode() -> list[av.AudioFrame]:
        decoder = opus.OpusDecoder()
        numbered = enumerate(payloads)
        return [
            frame
            for number, data in numbered
            for frame in decoder.decode(JitterFrame(data=data, timestamp=number * FRAME))
        ]

    heard = decode()

    def resample() -> None:
        resampler = av.AudioResampler(format="s16", layout="mono", rate=16_000)
        for frame in heard:
            resampler.resample(frame)

    count = len(payloads)
    sent, received = sockets(encrypted)
    print(
        json.dumps(
            {
                "version": aiortc.__version__,
                "receive": received,
                "decrypt": each(count, decrypt),
                "jitter_buffer": each(count, buffer),
                "decode": each(count, decode),
                "resample": each(count, resample),
                "encode": each(count, encode),
                "encrypt": each(count, encrypt),
                "send": sent,
            }
        )
    )


main()
