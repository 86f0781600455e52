"""The protocol of reward services over gRPC: `reward.proto`, and the Python made of it."""
