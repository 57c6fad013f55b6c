"""Limits of the machine itself: matrix products, operations of one element, environment steps, copies to the device.

Products have the sizes of a layer with 256 units and a batch of 256, of 1 and 16 seeds. The rate of operations of one
element is how many kernels can be launched one by one (cuda) or how many PyTorch calls fit in a second (cpu).
"""

from __future__ import annotations

import argparse
from typing import Any

import torch

from speed_cases.timing import per_second

PRODUCTS = {  # seeds, rows, inputs, outputs
    "256 x 17 x 256": (1, 256, 17, 256),
    "256 x 256 x 256": (1, 256, 256, 256),
    "16 x 256 x 256 x 256": (16, 256, 256, 256),
    "7936 x 256 x 256": (1, 7936, 256, 256),  # 31 actions for each of 256 transitions, as in CQL
}
ENVIRONMENTS = ("CartPole-v1", "Pendulum-v1", "Hopper-v5", "HalfCheetah-v5")
COPIES = {"one row of 23 numbers": 23, "a batch of 1.5 MB": 393_216, "64 MB": 16_777_216}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    parser.add_argument("--devices", nargs="+", default=devices, help=f"default: {' '.join(devices)}")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads for PyTorch")
    parser.add_argument("--seconds", type=float, default=0.5, help="seconds of one measurement")


def measure(args: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(args.threads)
    torch.set_float32_matmul_precision("high")
    found: dict[str, dict[str, Any]] = {"environment steps a second": environments(args.seconds)}
    for device in args.devices:
        found[device] = {
            "GFLOP/s": products(device, args.seconds),
            "operations a second": operations(device, args.seconds),
            "copies, MB/s": copies(device, args.seconds),
        }
    return summary(found, args)


def products(device: str, seconds: float) -> dict[str, float]:
    rates = {}
    for name, (seeds, rows, inputs, outputs) in PRODUCTS.items():
        left = torch.randn(seeds, rows, inputs, device=device)
        right = torch.randn(seeds, inputs, outputs, device=device)
        result = torch.empty(seeds, rows, outputs, device=device)
        rate = per_second(lambda a=left, b=right, c=result: torch.bmm(a, b, out=c), device, seconds, warm_up=3)
        rates[name] = rate * 2 * seeds * rows * inputs * outputs / 1e9
    return rates


def operations(device: str, seconds: float) -> dict[str, float]:
    one = torch.zeros(1, device=device)
    rates = {"one by one": per_second(lambda: one.add_(1), device, seconds, warm_up=10)}
    if device.startswith("cuda"):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(1000):
                one.add_(1)
        rates["in a CUDA graph"] = 1000 * per_second(graph.replay, device, seconds, warm_up=3)
        rates["with a wait after each"] = per_second(lambda: one.add_(1).item(), device, seconds)
    return rates


def copies(device: str, seconds: float) -> dict[str, float]:
    rates = {}
    for name, count in COPIES.items():
        target = torch.zeros(count, device=device)
        sources = {"": torch.zeros(count)}
        if device.startswith("cuda"):
            sources[", pinned"] = torch.zeros(count).pin_memory()
        for kind, source in sources.items():
            rate = per_second(lambda a=target, b=source: a.copy_(b, non_blocking=True), device, seconds, warm_up=3)
            rates[name + kind] = rate * 4 * count / 1e6
    return rates


def environments(seconds: float) -> dict[str, float]:
    """Steps a second of one environment with random actions; without those that are not installed."""
    import gymnasium as gym

    rates = {}
    for name in ENVIRONMENTS:
        try:
            env = gym.make(name, disable_env_checker=True)
        except gym.error.Error:
            continue
        env.reset(seed=0)
        env.action_space.seed(0)
        rates[name] = per_second(lambda env=env: step(env), "cpu", seconds, warm_up=10)
        env.close()
    return rates


def step(env: Any) -> None:
    _, _, terminated, truncated, _ = env.step(env.action_space.sample())
    if terminated or truncated:
        env.reset()


def summary(found: dict[str, dict[str, Any]], args: argparse.Namespace) -> dict[str, Any]:
    largest = "16 x 256 x 256 x 256"
    parts = [
        f"{device}: {found[device]['GFLOP/s'][largest]:,.0f} GFLOP/s, "
        f"{found[device]['operations a second']['one by one']:,.0f} operations a second"
        for device in args.devices
    ]
    parts += [f"{name}: {rate:,.0f} steps a second" for name, rate in found["environment steps a second"].items()]
    return {
        "what": "Limits of the machine: matrix products of 16 seeds, operations of one element, environments alone",
        "result": "; ".join(parts),
        "goal": "",
        "page": "performance",
        "limits": found,
        "note": f"{args.threads} thread(s) of torch; TF32 products on cuda",
        "commands": [f"python benchmarks/speed.py ceiling --threads {args.threads}"],
    }
