"""Reinforcement fine-tuning of vision-language and language models on Ray."""

__version__ = "0.1.0"
