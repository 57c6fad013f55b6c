"""Comparison of benchmark results, and figures of runs, datasets and world models."""
