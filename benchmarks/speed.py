"""Measures speed. Every case prints one JSON object, as stored in benchmarks/results.

python benchmarks/speed.py throughput --device cuda > benchmarks/results/throughput.json
taskset -c 0 python benchmarks/speed.py compiled > benchmarks/results/compiled.json
python benchmarks/speed.py data > benchmarks/results/data_speed.json
python benchmarks/speed.py dreamer > benchmarks/results/dreamer_speed.json
python benchmarks/speed.py engine > benchmarks/results/engine_overhead.json
python benchmarks/speed.py priorities > benchmarks/results/priorities.json
python benchmarks/speed.py gpu > benchmarks/results/gpu_training.json
python benchmarks/speed.py startup > benchmarks/results/startup.json
python benchmarks/speed.py ceiling > benchmarks/results/ceiling.json
python benchmarks/speed.py growth > benchmarks/results/growth.json
python benchmarks/speed.py trainings --core 0 --peer sb3=VENV/bin/python ... > benchmarks/results/trainings.json
"""

from __future__ import annotations

import argparse
import json
import signal
import sys

from provenance import provenance
from speed_cases import (
    ceiling,
    compiled,
    data,
    dreamer,
    engine,
    gpu,
    growth,
    priorities,
    startup,
    throughput,
    trainings,
)

CASES = {
    "throughput": throughput, "compiled": compiled, "data": data, "dreamer": dreamer, "engine": engine,
    "priorities": priorities, "gpu": gpu, "trainings": trainings,
    "ceiling": ceiling, "growth": growth, "startup": startup,
}  # fmt: skip


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that trainings that it has started are ended
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    cases = parser.add_subparsers(dest="case", required=True, metavar="CASE")
    for name, module in CASES.items():
        about = str(module.__doc__)
        module.add_arguments(cases.add_parser(name, help=about.splitlines()[0], description=about, formatter_class=raw))
    args = parser.parse_args()
    print(json.dumps({**CASES[args.case].measure(args), **provenance()}, indent=2))


if __name__ == "__main__":
    main()
