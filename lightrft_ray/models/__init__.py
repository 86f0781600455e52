"""Actors, critics and reward models in plain PyTorch."""
