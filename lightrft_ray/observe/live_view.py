"""The live view of a terminal: a progress bar with the time left above a table of late steps."""

from collections import deque
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table
from rich.text import Text

from lightrft_ray.observe.formatting import duration, number, seconds
from lightrft_ray.observe.names import PHASES
from lightrft_ray.observe.step_figures import StepFigures

_ROWS = 8


class LiveView:
    """Redraws itself in place on `stream`, four times a second, until it is stopped.

    Whatever else the process prints meanwhile appears above it.
    """

    def __init__(self, total_steps: int, stream: TextIO) -> None:
        self._console = Console(file=stream, force_terminal=True, highlight=False)
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("ETA {task.fields[eta]}"),
            console=self._console,
        )
        self._task = self._bar.add_task("starting", total=total_steps, eta="-")
        self._rows: deque[StepFigures] = deque(maxlen=_ROWS)
        self._live = Live(self._bar, console=self._console)

    def start(self) -> None:
        """Begin to draw."""
        self._live.start()

    def stop(self) -> None:
        """Leave the last picture on the terminal and restore the cursor."""
        self._live.stop()

    def phase(self, name: str) -> None:
        """Show `name` beside the bar until the first step replaces it."""
        self._bar.update(self._task, description=f"{name} …")

    def step(self, figures: StepFigures) -> None:
        """Move the bar and add a row to the table."""
        self._rows.append(figures)
        self._bar.update(
            self._task,
            completed=figures.step,
            description="training",
            eta=duration(figures.eta),
        )
        self._live.update(Group(self._bar, _table(list(self._rows))))

    def message(self, text: str) -> None:
        """Print `text` above the view, where it stays."""
        self._console.print(Text(text, style="yellow"))


def _table(rows: list[StepFigures]) -> Table:
    """One row a step; a phase has a column when it took time in one of the steps shown."""
    phases = [phase for phase in PHASES if any(phase in row.phases for row in rows)]
    # No frame and one space between columns: all of them fit into 80 characters.
    table = Table(box=None, padding=(0, 0, 0, 1), pad_edge=False)
    for heading in ("step", "reward", "acc", "KL", "tok/s", "s/step", *phases):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            str(row.step),
            number(row.reward, ".3f"),
            number(row.accuracy, ".3f"),
            number(row.kl, ".4f"),
            number(row.tokens_per_second, ".0f"),
            seconds(row.seconds),
            *(seconds(row.phases.get(phase)) for phase in phases),
        )
    return table
