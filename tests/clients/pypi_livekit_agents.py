"""Goes through a scenario with the stock `livekit-agents` and its OpenAI plugin. Usage: pypi_livekit_agents.py ADDRESS
SCENARIO

A whole agent session with the plugin's own defaults, between a microphone and a loudspeaker made of files: the session
decides when an answer is given up, and asks the server to truncate it by what the loudspeaker has played.
"""

import asyncio
import time

from livekit import rtc
from livekit.agents import Agent, AgentSession, RunContext, function_tool
from livekit.agents.voice.io import AudioInput, AudioOutput, AudioOutputCapabilities
from livekit.plugins import openai

from scenario import Answer, Scenario, arguments

# The session remembers an answer a moment after it was played.
REMEMBERED_WITHIN_S = 10


class Microphone(AudioInput):
    """Forwards queued audio."""

    def __init__(self) -> None:
        super().__init__(label="microphone")
        self.frames: asyncio.Queue[rtc.AudioFrame] = asyncio.Queue()

    async def __anext__(self) -> rtc.AudioFrame:
        return await self.frames.get()


class Loudspeaker(AudioOutput):
    """Plays in real time and keeps its audio."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(
            label="loudspeaker",
            next_in_chain=None,
            sample_rate=scenario.rate,
            capabilities=AudioOutputCapabilities(pause=False),
        )
        self._scenario = scenario
        self._answer: Answer | None = None
        self._begun = 0.0
        self._end: asyncio.TimerHandle | None = None

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        if self._answer is None:
            # A segment is one answer; its name is its number.
            self._answer = self._scenario.answer(str(len(self._scenario.answers)))
            self._begun = time.time()
            self.on_playback_started(created_at=self._begun)
        self._scenario.sounded(self._answer, bytes(frame.data))

    def flush(self) -> None:
        super().flush()
        if self._answer is not None:
            self._answer.made = True
            left = self._begun + self._length() - time.time()
            self._end = asyncio.get_running_loop().call_later(max(0, left), self._stop, False)

    def clear_buffer(self) -> None:
        if self._answer is not None:
            self._answer.interrupted = True
            self._stop(True)

    def _length(self) -> float:
        assert self._answer is not None, "nothing is played"
        return self._answer.length_ms(self._scenario.rate) / 1000

    def _stop(self, interrupted: bool) -> None:
        if self._end is not None:
            self._end.cancel()
        played = min(time.time() - self._begun, self._length())
        self._answer, self._end = None, None
        self.on_playback_finished(playback_position=played, interrupted=interrupted)


def tools(scenario: Scenario) -> list:
    async def call(raw_arguments: dict, context: RunContext) -> str:
        return scenario.call(raw_arguments)

    if not (function := scenario.function):
        return []
    schema = {"type": "function"} | {key: function[key] for key in ("name", "description", "parameters")}
    return [function_tool(call, raw_schema=schema)]


def said(session: AgentSession) -> list[str]:
    """The session's own memory of its answers."""
    messages = [item for item in session.history.items if item.type == "message" and item.role == "assistant"]
    return [message.text_content or "" for message in messages]


async def talk(address: str, scenario: Scenario) -> None:
    model = openai.realtime.RealtimeModel(base_url=f"http://{address}/v1", api_key=scenario.key)
    # The server finds the turns.
    async with AgentSession(llm=model, vad=None) as session:
        microphone = Microphone()
        session.input.audio = microphone
        session.output.audio = Loudspeaker(scenario)
        session.on("error", lambda event: scenario.errors.append(str(event.error)))
        await session.start(Agent(instructions="Be brief.", tools=tools(scenario)))
        for index, turn in enumerate(scenario.turns):
            async for piece in scenario.pieces(turn, pace=1):
                samples = len(piece) // 2
                microphone.frames.put_nowait(rtc.AudioFrame(piece, scenario.rate, 1, samples))
            await scenario.answered(index)
        async with asyncio.timeout(REMEMBERED_WITHIN_S):
            while len(said(session)) < len(scenario.answers):  # noqa: ASYNC110 (the client's memory has no signal)
                await asyncio.sleep(0.02)
        for answer, text in zip(scenario.answers, said(session), strict=True):
            answer.transcript = text


if __name__ == "__main__":
    address, scenario = arguments()
    asyncio.run(talk(address, scenario))
    scenario.report("livekit-agents")
