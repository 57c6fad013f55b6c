"""The resources that Ray reserves for one job, and the nodes that have them."""

from typing import Any, NamedTuple

from rl_training.experiment.executors.base import ExecutorOptions
from rl_training.messages import many

GIB = 2**30


class Resources(NamedTuple):
    """CPU cores, GPUs and bytes of RAM of one job."""

    cpus: int = 1
    gpus: float = 0.0
    memory: int = 0

    def options(self) -> dict[str, Any]:
        """Arguments of `ray.remote`. Ray itself restarts nothing: a command continues when it is repeated."""
        memory = {"memory": self.memory} if self.memory else {}
        return {"num_cpus": self.cpus, "num_gpus": self.gpus, "max_restarts": 0, "max_task_retries": 0, **memory}

    def fit_somewhere(self) -> bool:
        """Whether one node has all of them, in use or not."""
        return self.capacity() > 0

    def capacity(self) -> int:
        """The number of jobs that all nodes together hold at a time."""
        wanted = {"CPU": self.cpus, "GPU": self.gpus, "memory": self.memory}
        return sum(min(int(node[key] / each + 1e-6) for key, each in wanted.items() if each) for node in _nodes())

    def refusal(self) -> str:
        has = "; ".join(sorted({_words(int(node["CPU"]), node["GPU"], int(node["memory"])) for node in _nodes()}))
        wanted = _words(self.cpus, self.gpus, self.memory)
        return f"no node of the Ray cluster has {wanted} (a node has {has or 'nothing'})"


def resources_of(options: ExecutorOptions) -> Resources:
    gpus, slots = options.gpus, options.slots
    if slots is not None and gpus is not None:
        same = f"--slots {slots} is --gpus {1 / slots:.3g}"
        raise ValueError(f"--gpus {gpus:g} and --slots {slots} both set the GPUs of a job ({same}); give one of them")
    if slots is not None:
        gpus = 1 / slots
    if gpus is not None and gpus > 1 and not gpus.is_integer():
        raise ValueError(f"--gpus must be at most 1 or a whole number, got {gpus:g}")
    return Resources(options.cpus or 1, gpus or 0.0, options.memory or 0)


def unused_gpus(resources: Resources) -> int:
    """The GPUs of the cluster if the jobs ask for none."""
    return 0 if resources.gpus else int(sum(node["GPU"] for node in _nodes()))


def _nodes() -> list[dict[str, float]]:
    import ray

    empty = {"CPU": 0.0, "GPU": 0.0, "memory": 0.0}
    return [{**empty, **node["Resources"]} for node in ray.nodes() if node["Alive"]]


def _words(cpus: int, gpus: float, memory: int) -> str:
    parts = [many(cpus, "CPU")]
    parts += [f"{gpus:g} GPU{'' if gpus == 1 else 's'}"] if gpus else []
    parts += [f"{memory / GIB:.1f} GiB of memory"] if memory else []
    return ", ".join(parts)
