"""Measurements of `benchmarks/speed.py`: each module has `add_arguments(parser)` and `measure(args)`."""
