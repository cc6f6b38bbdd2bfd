"""Goes through a scenario with the stock `pipecat-ai` realtime service. Usage: pypi_pipecat.py ADDRESS SCENARIO

A whole pipeline with the service's own defaults, between a microphone and a loudspeaker made of files: the service
truncates by the clock, and the pipeline drops what the loudspeaker has not played.
"""

import asyncio
from collections.abc import Callable

from loguru import logger
from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import (
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    OutputAudioRawFrame,
    StartFrame,
    TTSAudioRawFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.llm_service import FunctionCallParams
from pipecat.services.openai.realtime.events import SessionProperties
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.transports.base_input import BaseInputTransport
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import TransportParams
from pipecat.workers.runner import WorkerRunner

from scenario import Answer, Scenario, arguments


class Microphone(BaseInputTransport):
    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)


class Loudspeaker(BaseOutputTransport):
    """Plays at the pace of the clock."""

    def __init__(self, params: TransportParams, recorder: "Recorder") -> None:
        super().__init__(params)
        self._recorder = recorder

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        await asyncio.sleep(frame.num_frames / frame.sample_rate)
        if self._recorder.answer is not None:
            self._recorder.answer.played_by_client_ms += frame.num_frames / frame.sample_rate * 1000
        return True


class Recorder(FrameProcessor):
    """Records the frames of the service."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__()
        self._scenario = scenario
        self._begins = False
        self.answer: Answer | None = None

    def _current(self) -> Answer:
        if self._begins or self.answer is None:
            # One after another; its name is its number.
            self.answer = self._scenario.answer(str(len(self._scenario.answers)))
            self.answer.played_by_client_ms = 0
            self._begins = False
        return self.answer

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        match frame:
            case LLMFullResponseStartFrame():
                self._begins = True
            case TTSTextFrame():
                self._current().transcript += frame.text
            case TTSAudioRawFrame():
                self._scenario.sounded(self._current(), frame.audio)
            case LLMFullResponseEndFrame() if self.answer and not self._begins:
                self.answer.made = True
            case InterruptionFrame() if self.answer:
                self._scenario.stopped(self.answer)
            case ErrorFrame():
                self._scenario.errors.append(frame.error)
        await self.push_frame(frame, direction)


def functions(scenario: Scenario) -> tuple[ToolsSchema | None, Callable]:
    async def call(params: FunctionCallParams) -> None:
        await params.result_callback(scenario.call(dict(params.arguments)))

    if not (function := scenario.function):
        return None, call
    parameters = function["parameters"]
    schema = FunctionSchema(function["name"], function["description"], parameters["properties"], parameters["required"])
    return ToolsSchema([schema]), call


async def talk(address: str, scenario: Scenario) -> None:
    tools, call = functions(scenario)
    service = OpenAIRealtimeLLMService(
        api_key=scenario.key,
        base_url=f"ws://{address}/v1/realtime",
        settings=OpenAIRealtimeLLMService.Settings(
            system_instruction="Be brief.", session_properties=SessionProperties(tools=tools)
        ),
    )
    # For any function name.
    service.register_function(None, call)
    params = TransportParams(audio_in_enabled=True, audio_out_enabled=True)
    recorder = Recorder(scenario)
    microphone, loudspeaker = Microphone(params), Loudspeaker(params, recorder)
    memory = LLMContextAggregatorPair(LLMContext())
    pipeline = Pipeline([microphone, memory.user(), service, recorder, loudspeaker, memory.assistant()])
    rates = PipelineParams(audio_in_sample_rate=scenario.rate, audio_out_sample_rate=scenario.rate)
    worker = PipelineWorker(pipeline, params=rates)
    ready = asyncio.Event()

    @worker.event_handler("on_pipeline_started")
    async def started(*_: object) -> None:
        ready.set()

    @worker.event_handler("on_pipeline_error")
    async def failed(_: object, frame: ErrorFrame) -> None:
        scenario.errors.append(frame.error)

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    await ready.wait()
    try:
        for index, turn in enumerate(scenario.turns):
            async for piece in scenario.pieces(turn, pace=1):
                await microphone.push_audio_frame(
                    InputAudioRawFrame(audio=piece, sample_rate=scenario.rate, num_channels=1)
                )
            await scenario.answered(index)
    finally:
        await worker.cancel()
        await running


if __name__ == "__main__":
    logger.remove()
    address, scenario = arguments()
    asyncio.run(talk(address, scenario))
    scenario.report("pipecat-ai")
