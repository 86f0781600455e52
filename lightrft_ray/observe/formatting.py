"""Numbers and durations as a person reads them."""

import math


def number(value: float | None, spec: str) -> str:
    """Format `value` by the format specification `spec`; "-" when it is missing or NaN."""
    return "-" if value is None or math.isnan(value) else format(value, spec)


def seconds(value: float | None) -> str:
    """Format a phase's seconds with three digits, such as "0.51", "12.3" or "123"; "-" if none."""
    if value is None:
        return "-"
    return number(value, ".2f" if value < 9.995 else ".1f" if value < 99.95 else ".0f")


def duration(value: float | None) -> str:
    """Format seconds as "45s", "4m 12s" or "1h 03m"; "-" when unknown."""
    if value is None or math.isnan(value):
        return "-"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes:02d}m"
    return f"{minutes}m {rest:02d}s" if minutes else f"{rest}s"
