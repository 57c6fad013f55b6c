"""Choices that a new run makes by timing its updates: CPU threads and compilation."""
