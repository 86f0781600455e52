"""The processes of an engine end with the one that owns it, however that ends.

Ray kills what a dead worker leaves, but not where the node's raylet dies first, as it does with a
local run's driver; and vLLM's engine never looks for its parent.
"""

import os
import select
import signal
import threading

_OWNER = "LIGHTRFT_ENGINE_OWNER"
_WATCHER = "engine owner"


def own_engine() -> None:
    """Let this process own the engine that it starts next."""
    os.environ[_OWNER] = str(os.getpid())


def end_with_owner() -> None:
    """Have this process, where an owner started it, killed when that is gone; once is enough."""
    owner = int(os.environ.get(_OWNER, os.getpid()))
    is_watched = any(thread.name == _WATCHER for thread in threading.enumerate())
    if owner != os.getpid() and not is_watched:
        threading.Thread(target=_end_after, args=[owner], name=_WATCHER, daemon=True).start()


def _end_after(owner: int) -> None:
    try:
        end = os.pidfd_open(owner)
    except ProcessLookupError:
        pass
    else:
        select.select([end], [], [])
    os.kill(os.getpid(), signal.SIGKILL)
