"""Typed run configuration. Imports without torch."""
