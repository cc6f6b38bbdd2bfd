"""Goes through a scenario with the stock `openai-agents` client. Usage: pypi_openai_agents.py ADDRESS SCENARIO

With its own defaults: its model and voice, semantic turn detection, input transcription, tracing. It tells by the clock
what was played, truncates and cancels by itself, and validates every event.
"""

import asyncio
import json

from agents import FunctionTool
from agents.realtime import RealtimeAgent, RealtimeRunner, RealtimeSession

from scenario import Scenario, arguments


async def listen(session: RealtimeSession, scenario: Scenario) -> None:
    # The client names an answer by its item where it speaks, by its response where it ends.
    items: dict[str, str] = {}
    async for event in session:
        match event.type:
            case "audio":
                items[event.audio.response_id] = event.item_id
                scenario.sounded(scenario.answer(event.item_id), event.audio.data)
            case "audio_interrupted":
                scenario.stopped(scenario.answer(event.item_id))
            case "error":
                scenario.errors.append(str(event.error))
            case "raw_model_event":
                match event.data.type:
                    case "transcript_delta":
                        scenario.answer(event.data.item_id).transcript += event.data.delta
                    case "turn_ended" if event.data.response_id in items:
                        scenario.answer(items[event.data.response_id]).made = True
                    case "exception":
                        scenario.errors.append(f"{event.data.context}: {event.data.exception}")


def tools(scenario: Scenario) -> list[FunctionTool]:
    async def call(_: object, arguments: str) -> str:
        return scenario.call(json.loads(arguments))

    if not (function := scenario.function):
        return []
    name, description, parameters = function["name"], function["description"], function["parameters"]
    return [FunctionTool(name, description, parameters, call)]


async def talk(address: str, scenario: Scenario) -> None:
    runner = RealtimeRunner(RealtimeAgent(name="Assistant", instructions="Be brief.", tools=tools(scenario)))
    url = f"ws://{address}/v1/realtime?model=gpt-realtime"
    session = await runner.run(model_config={"url": url, "api_key": scenario.key})
    async with session:
        listening = asyncio.create_task(listen(session, scenario))
        for index, turn in enumerate(scenario.turns):
            async for piece in scenario.pieces(turn):
                await session.send_audio(piece)
            await scenario.answered(index)
        listening.cancel()


if __name__ == "__main__":
    address, scenario = arguments()
    asyncio.run(talk(address, scenario))
    scenario.report("openai-agents")
