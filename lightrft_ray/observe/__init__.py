"""Metrics, progress, plots and summaries of a run."""
