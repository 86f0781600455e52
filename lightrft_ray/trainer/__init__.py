"""Samples, experience, advantages and losses in pure torch: no Ray, no vLLM."""
