"""Asks two questions over the websocket with the stock `openai` client, unmodified.

Usage: openai_turn.py BASE_URL FOLDER FIRST.wav SECOND.wav

The first turn is committed by the client, the second is cut out by the server's voice activity detection. Each answer's
sound is written to FOLDER/N.wav. Prints one JSON object: {"session": the session as created, "turns": [{"question",
"transcript", "recording", "seconds", "first_sound_ms", "status", "events"}]}; `events` holds every event type in order.
"""

import asyncio
import base64
import json
import pathlib
import sys
import time
import wave

import av
import numpy
from openai import AsyncOpenAI
from openai.resources.realtime.realtime import AsyncRealtimeConnection

# The wire's PCM: mono, 16 bit, little endian.
RATE = 24_000
PCM = {"type": "audio/pcm", "rate": RATE}
SLICE_BYTES = RATE // 10 * 2
# Silence after a question, for the end of the turn.
PAUSE_S = 1.0
# Audible: -45 dBFS over one slice of sound.
HEARD = 10 ** (-45 / 20)
ANSWERED_WITHIN_S = 60


def sound_of(path: str) -> bytes:
    """The file's sound as the wire carries it."""
    resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
    with av.open(path) as file:
        frames = [out for frame in file.decode(audio=0) for out in resampler.resample(frame)]
        frames += resampler.resample(None)
    return numpy.concatenate([frame.to_ndarray()[0] for frame in frames]).astype("<i2").tobytes()


def is_heard(pcm: bytes) -> bool:
    samples = numpy.frombuffer(pcm, "<i2").astype(numpy.float64) / 32768
    return len(samples) > 0 and numpy.sqrt(numpy.mean(samples**2)) > HEARD


async def append(connection: AsyncRealtimeConnection, sound: bytes) -> None:
    for start in range(0, len(sound), SLICE_BYTES):
        await connection.input_audio_buffer.append(audio=base64.b64encode(sound[start : start + SLICE_BYTES]).decode())


async def configure(connection: AsyncRealtimeConnection, turn_detection: dict | None) -> None:
    audio = {"input": {"format": PCM, "turn_detection": turn_detection}, "output": {"format": PCM}}
    await connection.session.update(session={"type": "realtime", "output_modalities": ["audio"], "audio": audio})
    async for event in connection:
        if event.type == "error":
            raise SystemExit(f"session.update: {event.error.message}")
        if event.type == "session.updated":
            return


async def answer(connection: AsyncRealtimeConnection, question: str, recording: pathlib.Path) -> dict:
    """Reads one turn's events to the end of its answer."""
    events, transcript, sound = [], "", bytearray()
    committed = heard = None
    async for event in connection:
        events.append(event.type)
        match event.type:
            case "error":
                raise SystemExit(f"after {events}: {event.error.message}")
            case "input_audio_buffer.committed":
                committed = time.monotonic()
            case "response.output_audio_transcript.delta":
                transcript += event.delta
            case "response.output_audio.delta":
                piece = base64.b64decode(event.delta)
                sound += piece
                if heard is None and is_heard(piece):
                    heard = time.monotonic()
            case "response.done":
                break
    with wave.open(str(recording), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE)
        out.writeframes(bytes(sound))
    return {
        "question": question,
        "transcript": transcript,
        "recording": str(recording),
        "seconds": len(sound) / 2 / RATE,
        "first_sound_ms": round((heard - committed) * 1000, 1) if heard and committed else None,
        "status": event.response.status,
        "events": events,
    }


async def talk(base_url: str, folder: pathlib.Path, first: str, second: str) -> dict:
    # The client insists on a key; a server without keys takes any.
    client = AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0)
    async with client.realtime.connect(model="repartee") as connection:
        created = await connection.recv()
        if created.type != "session.created":
            raise SystemExit(f"the first event is {created.type}")

        await configure(connection, None)
        await append(connection, sound_of(first))
        await connection.input_audio_buffer.commit()
        await connection.response.create()
        turns = [await asyncio.wait_for(answer(connection, first, folder / "0.wav"), ANSWERED_WITHIN_S)]

        await configure(connection, {"type": "server_vad"})
        await append(connection, sound_of(second) + bytes(int(PAUSE_S * RATE) * 2))
        turns.append(await asyncio.wait_for(answer(connection, second, folder / "1.wav"), ANSWERED_WITHIN_S))
    return {"session": created.session.model_dump(), "turns": turns}


if __name__ == "__main__":
    url, folder, *questions = sys.argv[1:]
    print(json.dumps(asyncio.run(talk(url, pathlib.Path(folder), *questions))))
