"""Environments as batched PyTorch, which step on the device of the networks."""
