"""Resident memory of a worker."""

import psutil


def process_tree_mb() -> float:
    """Resident memory of this process and all its descendants, in MB (10⁶ bytes).

    Pages that processes share are counted for each of them.
    """
    process = psutil.Process()
    total = 0
    for member in [process, *process.children(recursive=True)]:
        try:
            total += member.memory_info().rss
        except psutil.NoSuchProcess:  # ended since it was listed
            continue
    return total / 1e6
