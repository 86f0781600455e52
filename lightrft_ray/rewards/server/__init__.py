"""Serving rewards over gRPC."""
