"""Settings of all unit tests."""

from hypothesis import settings

# Examples are short; what takes long once is the first call, or a machine that is busy elsewhere.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
