"""`rl-training report`: one HTML page about runs and benchmarks that opens offline."""

from rl_training.reporting.report.page import Options, Written, write_report

__all__ = ["Options", "Written", "write_report"]
