"""Acting on a GPU in environments of the host: CUDA graphs choose the actions, and pinned memory carries each step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from rl_training import streams
from rl_training.data import ReplayBuffer
from rl_training.data.sampling import PackedColumns
from rl_training.envs.pools.pool import Transition
from rl_training.runtime.lanes.acting import Actor
from rl_training.runtime.lanes.action_noise import ActionNoise
from rl_training.runtime.lanes.captured_call import CapturedCall
from rl_training.runtime.lanes.context import LaneContext
from rl_training.runtime.state import finite_actions
from rl_training.types import Action, Batch, Policy

STEPPED = ("rewards", "dones", "truncated", "next_obs")  # columns of a step that come from the environments


class CapturedActor(Actor):
    """An `Actor` whose tensors keep their place in GPU memory, so that CUDA graphs can read and write them.

    - A step of all environments is one transfer to the GPU, and its actions are one transfer back.
    - `obs` are the observations to act on next; `acted` are those that the last actions were chosen for.
    - Only `actions_on_host` waits for the GPU, and only until the policy has chosen.
    """

    def __init__(
        self, policy: Policy, pool: Any, generator: torch.Generator, device: torch.device, **options: Any
    ) -> None:
        super().__init__(policy, pool, generator, device, **options)
        lead, columns = self.noise_value.shape[:-1], ReplayBuffer.layout(pool.spec)
        layout = {**{name: columns[name] for name in STEPPED}, "obs": columns["obs"]}
        self._host, self._rows = PackedColumns(lead, layout, "cpu", pinned=True), PackedColumns(lead, layout, device)
        self._arrays = {name: column.numpy() for name, column in self._host.items()}
        self.acted, self.obs = self.obs, self._rows["obs"]
        self.keep_obs(self.acted)
        self._choices: dict[tuple[Policy, bool], CapturedCall[Action]] = {}
        self._actions = self._actions_on_host = torch.empty(0)  # of the last choice
        self._acted_on_host = torch.empty_like(self._host["obs"])
        self._chosen = torch.cuda.Event()

    @torch.no_grad()
    def choose(self, policy: Policy | None = None, *, deterministic: bool = False) -> Action:
        key = (policy or self.policy, deterministic)
        if key not in self._choices:
            choose = partial(self._choose, policy, deterministic=deterministic)
            changes = [self.noise_value, *([] if self.statistics is None else self.statistics.tensors)]
            self._choices[key] = CapturedCall(choose, self.generator, changes=changes)
        action = self._choices[key]()
        self._chosen.record()
        return action

    def _choose(self, policy: Policy | None, *, deterministic: bool) -> Action:
        self.acted.copy_(self.obs)
        action = self.act_on(self.acted, policy, deterministic=deterministic)
        if not self._actions.numel():
            self._actions = torch.empty_like(action.actions)
            self._actions_on_host = torch.empty_like(action.actions, device="cpu").pin_memory()
        self._actions.copy_(action.actions)
        self._actions_on_host.copy_(action.actions, non_blocking=True)
        return action._replace(actions=self._actions)

    def actions_on_host(self, action: Action) -> Any:
        self._chosen.synchronize()
        return finite_actions(self._actions_on_host).numpy()

    def step(self, action: Action, meanwhile: Callable[[], None] | None = None) -> tuple[Batch, Transition]:
        stepped = self.step_pool(action, meanwhile)
        self.send()
        columns = {**self.transition(), **action.extras}
        return {name: column.clone() for name, column in columns.items()}, stepped

    def step_pool(self, action: Action, meanwhile: Callable[[], None] | None) -> Transition:
        """Steps every environment and keeps the step in pinned memory; `send` transfers it."""
        if meanwhile is not None:
            meanwhile()  # before the actions are waited for, because launching takes as long as acting
        self.pool.begin_step(self.actions_on_host(action))
        stepped: Transition = self.pool.end_step()
        # The last transfer has ended: it came before the actions.
        self._acted_on_host.copy_(self._host["obs"])
        columns = (stepped.rewards, stepped.terminated, stepped.truncated, stepped.next_obs, stepped.obs)
        for array, column in zip(self._arrays.values(), columns, strict=True):
            array[...] = column
        self.reset_noise(stepped)
        return stepped

    def send(self) -> None:
        """Transfers the last step to the GPU without waiting, and adds its rewards to their statistics."""
        for column, sent in zip(self._rows.stored.values(), self._host.stored.values(), strict=True):
            column.copy_(sent, non_blocking=True)
        self.add_returns(self._rows)

    def transition(self) -> Batch:
        """The last step as columns of a replay buffer; the next step overwrites them."""
        return {"obs": self.acted, "actions": self._actions, **{name: self._rows[name] for name in STEPPED}}

    def transition_on_host(self) -> Batch:
        host = {name: self._host[name] for name in STEPPED}
        return {"obs": self._acted_on_host, "actions": self._actions_on_host, **host}

    def keep_obs(self, obs: Any, member: int | None = None) -> None:
        for held in (self.obs, self._host["obs"]):
            (held if member is None else held[member]).copy_(torch.as_tensor(obs))


class CapturedStorage:
    """Stores the steps of a `CapturedActor` in a replay buffer; transfer and writing are one CUDA graph.

    A buffer that counts its rows on the host gets the step from there.
    """

    def __init__(self, actor: CapturedActor, replay: ReplayBuffer) -> None:
        self.actor, self.replay = actor, replay
        self._store = CapturedCall(self._send_and_write, actor.generator)

    def store(self) -> None:
        if self.replay.writes_on_device:
            self._store()
            self.replay.advance(self.actor.pool.num_envs)
        else:
            self.actor.send()
            self.replay.add(self.actor.transition_on_host())

    def _send_and_write(self) -> None:
        self.actor.send()
        self.replay.write(self.actor.transition())


def new_actor(context: LaneContext) -> Actor:
    """Returns the actor of a run. It is captured on a GPU with environments of the host and without recurrent state."""
    generator = streams.generator(context.seed, "exploration", device=context.device)
    on_gpu = context.device.type == "cuda" and not context.pool.on_device
    kind = CapturedActor if on_gpu and not context.learner.initial_memory(1) else Actor
    noise = ActionNoise.build(context.options)
    policy: Any = context.policy
    return kind(
        policy, context.pool, generator, context.device, noise=noise, statistics=policy.running_statistics(),
        returns=policy.return_statistics(),
    )  # fmt: skip
