"""How workers give signs of life while they work."""

HEALTH = "health"
"""Concurrency group of an actor whose methods block: its `ping` has a thread of its own.

That thread needs the interpreter, which torch gives up during its passes. It beats through the
longest computation, and stands still with the whole process when that is stopped.
"""
