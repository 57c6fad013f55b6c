"""Environments stepped together, in this process or in worker processes."""
