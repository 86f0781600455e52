"""Placement, rollout, training loop and evaluation."""
