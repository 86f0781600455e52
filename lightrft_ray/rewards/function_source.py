"""Reward functions as sources: in processes with a deadline, or in this one."""

import asyncio
import queue
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from lightrft_ray.rewards.function_process import (
    FunctionProcess,
    FunctionProcessError,
    FunctionSpec,
)
from lightrft_ray.rewards.function_results import Rewards, fault
from lightrft_ray.rewards.functions import MAY_HANG, READY_MADE
from lightrft_ray.rewards.loading import load_reward
from lightrft_ray.rewards.sample import RewardSample, SampleScore
from lightrft_ray.rewards.scoring import RewardInputs


class InlineFunction:
    """A function that cannot hang, called in this process."""

    def __init__(self, spec: FunctionSpec) -> None:
        self._scorer = load_reward(spec.name, spec.arguments, spec.setting)
        self.wants_media = self._scorer.wants_media

    async def score(self, samples: Sequence[RewardSample]) -> list[SampleScore]:
        """Scores in the order of the samples."""
        inputs = RewardInputs.of(samples, with_media=self.wants_media)
        rewards = self._scorer.score(inputs)
        return rewards.as_scores([sample.sample_id for sample in samples])

    async def close(self) -> None:
        """Nothing is held."""


class FunctionPool:
    """A function in `processes` processes, each killed when a call lasts `call_timeout` seconds.

    Samples are shared out evenly, a share a call. If a call fails, its samples are scored again one
    by one, so that only the guilty ones go without a reward. Whoever is not scored within
    `total_timeout` seconds of `score` gets none either.
    """

    def __init__(
        self, spec: FunctionSpec, *, processes: int, call_timeout: float, total_timeout: float
    ) -> None:
        self._size = processes
        self._call_timeout = call_timeout
        self._total_timeout = total_timeout
        self._free: queue.SimpleQueue[FunctionProcess] = queue.SimpleQueue()
        self._all = [FunctionProcess(spec) for _ in range(processes)]
        for process in self._all:
            self._free.put(process)
        # Processes die with the thread that started them: these threads live as long as the pool.
        self._threads = ThreadPoolExecutor(processes, "reward-function")

    @property
    def wants_media(self) -> bool:
        """Whether the function looks at images or videos; known once it is loaded."""
        return self._all[0].wants_media

    async def start(self) -> None:
        """Load the function in all processes. Raises UserError where it cannot be loaded."""
        loop = asyncio.get_running_loop()
        await asyncio.gather(
            *(loop.run_in_executor(self._threads, process.start) for process in self._all)
        )

    async def score(self, samples: Sequence[RewardSample]) -> list[SampleScore]:
        """Scores in the order of the samples."""
        deadline = time.monotonic() + self._total_timeout
        inputs = RewardInputs.of(samples, with_media=self.wants_media)
        size = -(-len(samples) // self._size) or 1
        shares = [inputs.part(start, start + size) for start in range(0, len(samples), size)]
        parts = await asyncio.gather(*(self._share(share, deadline) for share in shares))
        return Rewards.joined(parts).as_scores([sample.sample_id for sample in samples])

    async def close(self) -> None:
        """End the processes."""
        for process in self._all:
            process.kill()
        self._threads.shutdown(wait=False)

    async def _share(self, inputs: RewardInputs, deadline: float) -> Rewards:
        try:
            return await self._call(inputs, deadline)
        except FunctionProcessError as error:
            if len(inputs) == 1:
                return fault(str(error))
        alone = [inputs.only(index) for index in range(len(inputs))]
        return Rewards.joined(
            await asyncio.gather(*(self._share(each, deadline) for each in alone))
        )

    async def _call(self, inputs: RewardInputs, deadline: float) -> Rewards:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._blocking_call, inputs, deadline)

    def _blocking_call(self, inputs: RewardInputs, deadline: float) -> Rewards:
        left = deadline - time.monotonic()
        if left <= 0:
            return fault(f"not scored within {self._total_timeout:g} s", len(inputs))
        process = self._free.get()
        try:
            return process.call(inputs, min(self._call_timeout, left))
        finally:
            self._free.put(process)


async def open_function(
    spec: FunctionSpec, *, processes: int, call_timeout: float, total_timeout: float
) -> InlineFunction | FunctionPool:
    """A function, loaded: here if it is known not to hang, else in processes as `FunctionPool`.

    Raises UserError where it cannot be loaded.
    """
    if spec.name in READY_MADE and spec.name not in MAY_HANG:
        return InlineFunction(spec)
    pool = FunctionPool(
        spec, processes=processes, call_timeout=call_timeout, total_timeout=total_timeout
    )
    await pool.start()
    return pool
