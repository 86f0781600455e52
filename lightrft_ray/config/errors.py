"""The three kinds of error of a run: the user's, the data's, the infrastructure's."""


class UserError(Exception):
    """A setting or an input that the user must change; the message says what, where and how.

    Entry points print it as one line and exit with status 2, without a traceback.
    """


class DataFault(Exception):  # noqa: N818 - a run goes on after a fault, not after an error
    """One sample or one prompt that cannot be used: it is skipped and counted."""


class InfrastructureError(Exception):
    """A process, a node or a transport failed or missed its deadline; names who was waited for."""


class WorkerDied(InfrastructureError):  # noqa: N818 - what happened, which a run may recover from
    """A worker's process is gone; the message names its role."""


class NoAnswer(InfrastructureError):  # noqa: N818 - what happened, which a run may recover from
    """A worker missed its deadline and may be at work still; the message names it."""


class InputsLost(WorkerDied):
    """What a worker was to work on went with the process that made it."""
