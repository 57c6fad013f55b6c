"""A pool whose environments are those of a `VectorSimulator`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rl_training import streams
from rl_training.envs.checks.first_steps import describe_failure
from rl_training.envs.device.contract import Finished, TensorPool, TensorTransition, where_rows
from rl_training.envs.device.returned import NOT_FINITE, Returned
from rl_training.envs.device.simulator import SimulatorStep, VectorSimulator
from rl_training.envs.pools.group import EnvError


class SimulatorPool(TensorPool):
    """Checks and converts what a simulator returns.

    On a GPU, NaN values are an error of `take_finished`, so that no step waits for the device.
    """

    def __init__(self, simulator: VectorSimulator, *, seed: int = 0, device: torch.device | str = "cpu") -> None:
        super().__init__(simulator.spec, simulator.num_envs, seed=seed, device=device)
        self.simulator, self.capturable = simulator, simulator.capturable
        self._returned = Returned(_name(simulator), self.spec, self.num_envs, self.device)
        self._resets = 0  # of all environments; each has another seed
        self._failed = torch.zeros((), dtype=torch.bool, device=self.device)
        low, high = (torch.tensor(bound, device=self.device) for bound in (self.spec.action_low, self.spec.action_high))
        if not (low.isfinite().all() and high.isfinite().all()):
            raise ValueError(f"{_name(simulator)} has infinite action bounds; give finite ones in its spec")
        self._middle, self._half = (low + high) / 2, (high - low) / 2
        start = self.spec.action_starts if self.spec.action_kind == "multi_discrete" else self.spec.action_start
        self._start = torch.tensor(start, dtype=torch.int64, device=self.device)

    def reset(self) -> Tensor:
        self._restart_counts()
        seed = streams.episode_seed(self.seed, 0, self._resets)
        self._resets += 1
        obs = self._returned.obs(self._call("reset", seed), "reset returned observations")
        self._require_finite(obs)
        if self._obs is None:
            self._obs = obs.clone()
        else:
            self._obs.copy_(obs)
        return self._obs

    def step(self, actions: Tensor) -> TensorTransition:
        return self.step_in_units(self._in_units(actions))

    @torch.no_grad()
    def step_in_units(self, actions: Tensor) -> TensorTransition:
        """Steps with actions in the units of the spec."""
        if self._obs is None:
            raise RuntimeError("call reset() before step()")
        obs, rewards, terminated, truncated, final = self._step(actions)
        self._require_finite(obs, rewards)
        self._lengths += 1
        self._returns += rewards
        ended = terminated | truncated
        self._count_ended(ended)
        if final is None:  # the value after a truncation is unknown
            next_obs, terminated, truncated = obs, ended, torch.zeros_like(ended)
        else:
            next_obs, truncated = where_rows(ended, final, obs), truncated & ~terminated
        next_obs = next_obs.clone() if next_obs is obs else next_obs
        self._obs.copy_(obs)
        return TensorTransition(next_obs, rewards, terminated, truncated, self._obs)

    def take_finished(self) -> Finished:
        self._raise_if_not_finite()
        return super().take_finished()

    def snapshot(self) -> dict[str, Any]:
        state = self.simulator.state()
        saved = {} if state is None else {"simulator": state}
        return {**super().snapshot(), "resets": self._resets, **saved}

    def restore(self, state: Mapping[str, Any]) -> list[str]:
        super().restore(state)
        self._resets = state["resets"]
        if "simulator" in state:
            self.simulator.load_state(state["simulator"])
            return []
        self.reset()
        return [f"{_name(self.simulator)} has no state() to save, so its environments start new episodes"]

    def close(self) -> None:
        self.simulator.close()

    def _in_units(self, actions: Tensor) -> Tensor:
        if self.spec.action_kind == "box":
            scaled = self._middle + self._half * actions.clamp(-1, 1)
            return scaled.view(-1, *self.spec.action_shape)
        return actions + self._start

    def _step(self, actions: Tensor) -> SimulatorStep:
        returned = self._call("step", actions)
        if not isinstance(returned, tuple) or len(returned) not in (4, 5):
            raise EnvError(f"{_name(self.simulator)}.step must return a SimulatorStep, got {type(returned).__name__}")
        obs, rewards, terminated, truncated, final = (*returned, None)[:5]
        return SimulatorStep(
            self._returned.obs(obs, "step returned observations"),
            self._returned.tensor(rewards, "step returned rewards", ()).float(),
            self._returned.flags(terminated, "step returned terminated"),
            self._returned.flags(truncated, "step returned truncated"),
            None if final is None else self._returned.obs(final, "step returned final_obs"),
        )

    def _require_finite(self, *values: Tensor) -> None:
        for value in values:
            if value.is_floating_point():
                self._failed |= ~value.isfinite().all()
        if self.device.type == "cpu":
            self._raise_if_not_finite()

    def _raise_if_not_finite(self) -> None:
        if self._failed:
            raise self._returned.error(NOT_FINITE)

    def _call(self, method: str, argument: Any) -> Any:
        try:
            return getattr(self.simulator, method)(argument)
        except Exception as error:  # whatever the code of the user raises
            raise self._returned.error(f"{method} failed: {describe_failure(error)}") from error


def _name(simulator: VectorSimulator) -> str:
    return type(simulator).__name__
