"""Tests of the viewer's page in a real browser."""
