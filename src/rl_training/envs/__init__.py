"""Environments that need preparing before an agent can learn in them."""
