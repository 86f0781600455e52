"""What a person sees while a run goes on: a live view on a terminal, plain lines elsewhere."""

import logging
import sys
from types import TracebackType
from typing import Literal, Protocol, Self, TextIO

from lightrft_ray.config.secrets import redact
from lightrft_ray.observe.live_view import LiveView
from lightrft_ray.observe.names import Record
from lightrft_ray.observe.step_figures import StepFigures, StepReader, plain_line

logger = logging.getLogger(__name__)

ProgressMode = Literal["auto", "live", "plain", "off"]


class Progress:
    """Shows start-up phases, steps and messages on `stream` (standard output when None).

    "auto" is "live" on a terminal and "plain" elsewhere; "off" shows messages alone, for a warning
    must not be lost. Use it as a context manager: leaving it gives the terminal back.
    """

    def __init__(
        self, total_steps: int, mode: ProgressMode = "auto", stream: TextIO | None = None
    ) -> None:
        self._reader = StepReader(total_steps)
        self._view = _choose_view(total_steps, mode, sys.stdout if stream is None else stream)

    def __enter__(self) -> Self:
        self._view.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._view.stop()

    def phase(self, name: str) -> None:
        """Announce a part of the start-up that takes a while, such as "starting vLLM"."""
        logger.info("%s", name)
        self._view.phase(name)

    def update(self, record: Record) -> None:
        """Show the step of `record`, in plain mode as one line. KeyError without a "step"."""
        figures = self._reader.read(record)
        logger.info("step", extra={"step": figures.step, "figures": figures._asdict()})
        self._view.step(figures)

    def message(self, text: str) -> None:
        """Show a warning or note, in every mode, and log it; secrets in it are masked."""
        logger.warning("%s", text)
        self._view.message(redact(text))


class _View(Protocol):
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def phase(self, name: str) -> None: ...
    def step(self, figures: StepFigures) -> None: ...
    def message(self, text: str) -> None: ...


class _PlainView:
    """One line for each thing shown, flushed, so that a job's log follows the run."""

    def __init__(self, total_steps: int, stream: TextIO) -> None:
        self._total_steps = total_steps
        self._stream = stream

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def phase(self, name: str) -> None:
        self.message(f"{name} …")

    def step(self, figures: StepFigures) -> None:
        self.message(plain_line(figures, self._total_steps))

    def message(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class _MessagesOnly:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def phase(self, name: str) -> None:
        pass

    def step(self, figures: StepFigures) -> None:
        pass

    def message(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


def _choose_view(total_steps: int, mode: ProgressMode, stream: TextIO) -> _View:
    if mode == "off":
        return _MessagesOnly(stream)
    if mode == "live" or (mode == "auto" and stream.isatty()):
        return LiveView(total_steps, stream)
    return _PlainView(total_steps, stream)
