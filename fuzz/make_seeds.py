#!/usr/bin/env python3
"""Writes the binary seeds of the fuzz targets: fuzz/seeds/{rtp,checkpoint,sound,multipart,sip}, the same on every run.

The other seeds are text and written by hand.
"""

import struct
from collections.abc import Iterable
from pathlib import Path

SEEDS = Path(__file__).resolve().parent / "seeds"
OPUS, RED = 111, 63


def write(target: str, name: str, data: bytes) -> None:
    path = SEEDS / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def packet(number: int, payload: bytes, kind: int = OPUS, ticks: int = 960) -> bytes:
    return struct.pack(">BBHII", 0x80, kind, number & 0xFFFF, number * ticks & 0xFFFFFFFF, 7) + payload


def records(datagrams: Iterable[bytes], wait: int = 20) -> bytes:
    """Joins datagrams as the target reads them: length, milliseconds since the last one, datagram."""
    return b"".join(struct.pack(">HB", len(datagram), wait) + datagram for datagram in datagrams)


def copies(*blocks: tuple[int, bytes], primary: bytes) -> bytes:
    """Builds a payload of redundant Opus (RFC 2198)."""
    heads = b"".join(struct.pack(">I", 1 << 31 | OPUS << 24 | offset << 10 | len(data)) for offset, data in blocks)
    return heads + bytes([OPUS]) + b"".join(data for _, data in blocks) + primary


def rtp() -> None:
    silk, celt, dtx = bytes([0x08, 0x0B, 0xE4, 0xC1, 0x36, 0xEC, 0xC5, 0x80]), bytes([0xFC, 1, 2, 3]), bytes([0x08])
    write("rtp", "in-order", records(packet(n, silk) for n in range(6)))
    write("rtp", "lost-and-late", records(packet(n, silk) for n in (0, 1, 4, 3, 9, 2, 9, 10)))
    write("rtp", "wraps", records(packet(n, celt) for n in (0xFFFE, 0xFFFF, 0x10000, 0x10001)))
    write("rtp", "pause", records(packet(n, dtx if n > 2 else silk) for n in (0, 1, 2, 3, 40)) + records([b""], 255))
    write("rtp", "long-packets", records((packet(n, bytes([0x0B, 0x06])) for n in range(5)), 1))
    red = [packet(n, copies((960, silk), (1920, celt), primary=silk), RED) for n in (0, 2, 5, 6)]
    write("rtp", "redundant", records(red))
    extended = struct.pack(">BBHIIHHI", 0x90, OPUS, 1, 960, 7, 0xBEDE, 1, 0x10FF0000) + silk
    padded = struct.pack(">BBHII", 0xA0, OPUS, 2, 1920, 7) + silk + bytes([0, 0, 3])
    write("rtp", "extension-and-padding", records([extended, padded, b"\x80", bytes([0x8F]) + extended[1:]]))


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def gguf() -> bytes:
    metadata = [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        text("general.alignment") + struct.pack("<II", 4, 32),
        text("llama.block_count") + struct.pack("<II", 4, 1),
        text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 3) + text("a") + text("b") + text("</s>"),
        text("tokenizer.ggml.scores") + struct.pack("<IIQ3f", 9, 6, 3, 0.0, -1.0, -2.0),
        text("tokenizer.ggml.token_type") + struct.pack("<IIQ3i", 9, 5, 3, 1, 1, 3),
    ]
    tensors = [
        text("token_embd.weight") + struct.pack("<IQQIQ", 2, 32, 3, 8, 0),
        text("output_norm.weight") + struct.pack("<IQIQ", 1, 32, 0, 128),
    ]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)) + b"".join(metadata + tensors)
    # Three rows of Q8_0 take 34 bytes each; then 32 numbers of four bytes.
    blocks = bytes(34 * 3) + bytes(128 - 34 * 3) + bytes(128)
    return head + bytes(-len(head) % 32) + blocks


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def onnx() -> bytes:
    def tensor(name: bytes, axes: list[int], data: bytes) -> bytes:
        dims = b"".join(field(1, axis) for axis in axes)
        return dims + field(2, 1) + field(8, name) + field(9, data)

    node = field(1, b"x") + field(1, b"w") + field(2, b"y") + field(3, b"layer") + field(4, b"MatMul")
    graph = field(1, node) + field(2, b"graph") + field(5, tensor(b"w", [2, 2], struct.pack("<4f", 1, 2, 3, 4)))
    graph += field(5, tensor(b"layer.bias", [2], struct.pack("<2f", 5, 6)))
    return field(1, 8) + field(7, graph)


def ctranslate2() -> bytes:
    def name(value: bytes) -> bytes:
        return struct.pack("<H", len(value) + 1) + value + b"\0"

    variables = [
        name(b"encoder/conv1/weight") + struct.pack("<BIIIBI", 3, 2, 1, 3, 0, 24) + bytes(24),
        name(b"decoder/embeddings/weight") + struct.pack("<BIIBI", 2, 4, 2, 1, 8) + bytes(8),
        name(b"decoder/embeddings/weight_scale") + struct.pack("<BIBI", 1, 4, 0, 16) + bytes(16),
    ]
    head = struct.pack("<I", 6) + name(b"WhisperSpec") + struct.pack("<II", 3, len(variables))
    return head + b"".join(variables) + struct.pack("<I", 0)


def checkpoint() -> None:
    write("checkpoint", "llama.gguf", gguf())
    write("checkpoint", "linear.onnx", onnx())
    write("checkpoint", "whisper.bin", ctranslate2())
    header = b'{"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"__metadata__":{"format":"pt"}}'
    write("checkpoint", "one.safetensors", struct.pack("<Q", len(header)) + header + bytes(16))


def wav(kind: int, channels: int, rate: int, bits: int, data: bytes) -> bytes:
    block = channels * bits // 8
    form = struct.pack("<HHIIHH", kind, channels, rate, rate * block, block, bits)
    if kind == 0xFFFE:
        form += struct.pack("<HHI", 22, bits, 0) + struct.pack("<H", 1) + bytes.fromhex("000000001000800000aa00389b71")
    chunks = b"fmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def sound() -> None:
    ramp = struct.pack("<200h", *(number * 150 - 15_000 for number in range(200)))
    write("sound", "mono-16.wav", wav(1, 1, 16_000, 16, ramp))
    write("sound", "stereo-16.wav", wav(1, 2, 44_100, 16, ramp))
    write("sound", "mono-8.wav", wav(1, 1, 8_000, 8, bytes(range(0, 250, 2))))
    write("sound", "mono-24.wav", wav(0xFFFE, 1, 48_000, 24, bytes(300)))
    write("sound", "float.wav", wav(3, 1, 24_000, 32, struct.pack("<50f", *(number / 50 for number in range(50)))))


def multipart() -> None:
    def form(*fields: tuple[str, bytes]) -> bytes:
        parts = b"".join(
            b'--x\r\nContent-Disposition: form-data; name="' + name.encode() + b'"\r\n\r\n' + data + b"\r\n"
            for name, data in fields
        )
        return b"multipart/form-data; boundary=x\n" + parts + b"--x--\r\n"

    offer = b"v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n"
    write("multipart", "call", form(("sdp", offer), ("session", b'{"type":"realtime","instructions":"Be kind."}')))
    write("multipart", "twice", form(("sdp", b"a"), ("sdp", b"b")))
    recording = wav(1, 1, 8_000, 8, bytes(40))
    write("multipart", "voice", form(("name", b"Ada"), ("consent", b"cons_1"), ("audio_sample", recording)))
    write("multipart", "unknown", form(("file", b"x"), ("", b"")))
    write("multipart", "sdp", b"application/sdp\n" + offer)
    write("multipart", "no-boundary", b"multipart/form-data\n--x\r\n\r\n--x--")


SDP = "v=0\r\no=- 1 1 IN IP4 192.0.2.7\r\ns=-\r\nc=IN IP4 192.0.2.7\r\nt=0 0\r\nm=audio 4000 "
KEYS = "\r\na=rtpmap:101 telephone-event/8000\r\n"


def message(first: str, sequence: str, headers: str = "", body: str = "", tag: str = "") -> bytes:
    """Builds a message of a telephone: `first` is its first line, `tag` the agent's."""
    own = "192.0.2.7:5070"
    branch = "@BRANCH@" if first.startswith("SIP/2.0") else "z9hG4bK" + sequence.split()[0]
    return (
        f"{first}\r\nVia: SIP/2.0/UDP {own};rport;branch={branch}\r\nMax-Forwards: 70\r\n"
        f"From: <sip:+4930123456@192.0.2.7>;tag=a7\r\nTo: <sip:voice@192.0.2.1>{tag}\r\nCall-ID: one\r\n"
        f"CSeq: {sequence}\r\nContact: <sip:phone@{own}>\r\n{headers}Content-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


def request(method: str, number: int, headers: str = "", body: str = "", tag: str = "") -> bytes:
    return message(f"{method} sip:voice@192.0.2.1 SIP/2.0", f"{number} {method}", headers, body, tag)


def sip() -> None:
    described, ours = "Content-Type: application/sdp\r\n", ";tag=@TAG@"
    offer = SDP + "RTP/AVP 8 0 101" + KEYS
    invite = request("INVITE", 1, described, offer)
    begun = [invite, request("ACK", 1, tag=ours)]
    pressed = [
        request("INFO", number, "Content-Type: application/dtmf-relay\r\n", f"Signal={key}\r\n", ours)
        for number, key in ((2, "5"), (3, "*"))
    ]
    held = [request("INVITE", 4, described, offer + "a=sendonly\r\n", ours), request("ACK", 4, tag=ours)]
    resumed = [request("UPDATE", 5, described, offer, ours), request("BYE", 6, tag=ours)]
    write("sip", "call", b"\0".join([*begun, *pressed, *held, *resumed]))
    write("sip", "cancelled", b"\0".join([invite, invite, request("CANCEL", 1), request("ACK", 1, tag=ours)]))
    transfer = [
        message("SIP/2.0 202 Accepted", "1 REFER"),
        request("NOTIFY", 7, "Event: refer\r\n", "SIP/2.0 200 OK\r\n", ours),
    ]
    write("sip", "transferred", b"\0".join([*begun, *pressed, *transfer, message("SIP/2.0 200 OK", "2 BYE")]))
    second = invite.replace(b"Call-ID: one", b"Call-ID: two").replace(b"branch=", b"branch=z9hG4bKtwo")
    write("sip", "two-calls", b"\0".join([invite, second, request("OPTIONS", 1)]))
    challenge = 'WWW-Authenticate: Digest realm="pbx", nonce="n1", algorithm=MD5, qop="auth", opaque="x"\r\n'
    registered = message("SIP/2.0 200 OK", "2 REGISTER", "Expires: 60\r\n")
    write("sip", "registered", b"\0".join([message("SIP/2.0 401 So", "1 REGISTER", challenge), registered]))
    challenge = challenge.replace("WWW-", "Proxy-")
    out = [
        message(first, number, headers, body, ";tag=b9")
        .replace(b"@BRANCH@", b"@INVITE@")
        .replace(b"Call-ID: one", b"Call-ID: @CALL@")
        for first, number, headers, body in (
            ("SIP/2.0 100 Trying", "1 INVITE", "", ""),
            ("SIP/2.0 407 So", "1 INVITE", challenge, ""),
            ("SIP/2.0 183 So", "2 INVITE", described, offer),
            ("SIP/2.0 200 OK", "2 INVITE", described, offer),
            ("SIP/2.0 200 OK", "2 INVITE", described, offer),
        )
    ]
    write("sip", "called", b"\0".join(out))
    write("sip", "called-busy", b"\0".join([out[0], out[0].replace(b"100 Trying", b"486 Busy Here")]))
    routes = "Record-Route: <sip:a;lr>, <sip:b;lr>\r\nVia: SIP/2.0/UDP c;branch=d, SIP/2.0/UDP e\r\n"
    write(
        "sip", "on-the-way", b"\0".join([request("INVITE", 1, routes + described, offer), request("BYE", 2, tag=ours)])
    )
    key = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0e"
    encrypted = f"a=crypto:2 AES_CM_128_HMAC_SHA1_32 inline:{key}|2^20\r\na=rtpmap:96 opus/48000/2\r\n"
    write("sip", "encrypted", request("INVITE", 1, described, SDP + "RTP/SAVP 96 101" + KEYS + encrypted))
    # On a connection: probes, messages one behind the other, and one that is not complete.
    write("sip", "connection", b"\r\n\r\n".join([b"", invite, invite + request("OPTIONS", 2), invite[:200]]))
    write("sip", "description", (SDP + "RTP/AVP 18 8\r\nm=video 4002 RTP/AVP 31\r\na=sendonly\r\n").encode())


if __name__ == "__main__":
    rtp()
    checkpoint()
    sound()
    multipart()
    sip()
