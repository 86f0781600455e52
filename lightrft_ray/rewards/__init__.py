"""Reward functions and clients."""
