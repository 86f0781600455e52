"""What can go wrong with a request to a reward service, by what is to be done about it."""

from enum import Enum


class FaultKind(Enum):
    """Whether to ask again, and what the fault says of the server."""

    TRANSIENT = "transient"
    """It may pass, as a broken connection does: ask again later, elsewhere if possible."""
    BUSY = "busy"
    """The server is well and asks to be asked later."""
    REFUSED = "refused"
    """This server will not answer as it and the client are set up: ask another, if any."""
    INVALID = "invalid"
    """The request or its answer is wrong, and would be so again."""


class RemoteFault(Exception):  # noqa: N818 - a run goes on after a fault
    """A request that got no valid answer; the message says what happened, for the user."""

    def __init__(self, kind: FaultKind, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_after = retry_after
        """Seconds that a busy server asks to wait at least; None where it does not say."""
