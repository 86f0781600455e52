"""Clients of reward services: one policy for what fails, over gRPC and over HTTP."""
