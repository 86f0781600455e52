"""Prompts, media, processors and the embedded tasks."""
