"""Small environments for tests and tutorials."""
