"""Asks questions over the websocket with the stock `openai` client, unmodified: each in a session of its own, push to
talk.

Usage: openai_questions.py BASE_URL FOLDER QUESTION.wav...

The N-th answer's sound is written to FOLDER/N.wav. Prints one JSON object, {"turns": as openai_turn.py has them}.
"""

import asyncio
import json
import pathlib
import sys

from openai import AsyncOpenAI

from openai_turn import ANSWERED_WITHIN_S, answer, append, configure, sound_of


async def ask(client: AsyncOpenAI, question: str, recording: pathlib.Path) -> dict:
    async with client.realtime.connect(model="repartee") as connection:
        created = await connection.recv()
        if created.type != "session.created":
            raise SystemExit(f"the first event is {created.type}")
        await configure(connection, None)
        await append(connection, sound_of(question))
        await connection.input_audio_buffer.commit()
        await connection.response.create()
        return await asyncio.wait_for(answer(connection, question, recording), ANSWERED_WITHIN_S)


async def ask_all(base_url: str, folder: pathlib.Path, questions: list[str]) -> dict:
    # The client insists on a key; a server without keys takes any.
    client = AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0)
    return {"turns": [await ask(client, question, folder / f"{index}.wav") for index, question in enumerate(questions)]}


if __name__ == "__main__":
    url, folder, *questions = sys.argv[1:]
    print(json.dumps(asyncio.run(ask_all(url, pathlib.Path(folder), questions))))
