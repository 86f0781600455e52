"""Requests that an engine of vLLM works on."""

from dataclasses import dataclass

from vllm.outputs import RequestOutput
from vllm.v1.engine.output_processor import RequestOutputCollector

from lightrft_ray.workers.messages import PromptTask
from lightrft_ray.workers.rendering import RenderedPrompt


@dataclass(frozen=True)
class Pending:
    """A prompt that the engine is sampling from."""

    task: PromptTask
    rendered: RenderedPrompt
    collector: RequestOutputCollector


async def finished(collector: RequestOutputCollector) -> RequestOutput:
    """The output of a request that asked for the last alone."""
    try:
        output = await collector.get()
    finally:
        collector.close()
    if not isinstance(output, RequestOutput) or not output.finished:
        raise RuntimeError("vLLM gave an unfinished output for a request that asked for the last")
    return output
