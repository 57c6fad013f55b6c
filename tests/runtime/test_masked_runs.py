"""Runs with masks of valid actions: no invalid action is taken, resume is exact, and `predict` takes masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rl_training.algorithms import CATALOGUE, DQNAlgorithm, Learner, PPOAlgorithm, SACAlgorithm
from rl_training.envs.creation import making
from rl_training.experiment.agent import load_agent
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.export.policy import action_probabilities
from rl_training.experiment.run import resume_run, run_training
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.callbacks.training import StopAtStep
from rl_training.runtime.policies import RandomPolicy
from rl_training.types import EnvSpec

ACTIONS: dict[str, Any] = {"discrete": spaces.Discrete(12, start=3), "multi": spaces.MultiDiscrete([5, 7])}
OBSERVATIONS: dict[str, Any] = {
    "vector": spaces.Box(-1, 1, (3,), np.float32), "image": spaces.Box(0, 255, (1, 8, 8), np.uint8),
    "key": spaces.Box(-1, 1, (3,), np.float32),
}  # fmt: skip


class Strict(gym.Env[Any, Any]):
    """Marks two random actions of each choice as valid, and raises an error for all others."""

    def __init__(self, actions: str = "discrete", obs: str = "vector", *, strict: bool = True) -> None:
        self.action_space, self.own, self.has_key = ACTIONS[actions], OBSERVATIONS[obs], obs == "key"
        self.strict, self.sizes = strict, [12] if actions == "discrete" else [5, 7]
        mask = spaces.Box(0, 1, (sum(self.sizes),), np.int8)
        self.observation_space = spaces.Dict(place=self.own, action_mask=mask) if self.has_key else self.own

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._result()

    def step(self, action: Any) -> Any:
        taken = [int(action) - 3] if len(self.sizes) == 1 else np.asarray(action).tolist()
        wrong = [index for part, index in zip(self.masks, taken, strict=True) if not part[index]]
        if wrong and self.strict:
            raise ValueError(f"invalid action {action}")
        done = bool(self.np_random.integers(9) == 0)
        obs, info = self._result()
        return obs, float(taken[0] % 3), done, False, info

    def _result(self) -> tuple[Any, dict[str, Any]]:
        self.masks = [np.zeros(size, np.int8) for size in self.sizes]
        for part in self.masks:
            part[self.np_random.choice(len(part), 2, replace=False)] = 1
        values = self.np_random.random(self.own.shape) * (255 if self.own.dtype == np.uint8 else 1)
        obs, mask = values.astype(self.own.dtype), np.concatenate(self.masks)
        return ({"place": obs, "action_mask": mask}, {}) if self.has_key else (obs, {"action_mask": mask})


gym.register("StrictMasks-v0", lambda **options: Strict(**options), max_episode_steps=30)
PPO: dict[str, Any] = {"num_steps": 32, "batch_size": 64, "epochs": 2, "hidden_sizes": [8]}
DQN: dict[str, Any] = {"learning_starts": 200, "batch_size": 8, "hidden_sizes": [8], "collect_steps": 4,
                       "buffer_size": 400, "exploration_fraction": 0.9, "target_interval": 20}  # fmt: skip
SAC: dict[str, Any] = {"learning_starts": 200, "batch_size": 8, "hidden_sizes": [8], "collect_steps": 4,
                       "buffer_size": 400}  # fmt: skip
LSTM = {"network": {"memory": "lstm", "memory_size": 6}, "sequence_length": 8}
FEW: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("ppo", {"obs": "key"}, {**PPO, "normalize_obs": True}), ("dqn", {}, {**DQN, "normalize_obs": True}),
    ("sac", {}, {**SAC, "normalize_obs": True}),
    ("ppo", {"actions": "multi", "obs": "key"}, {**PPO, **LSTM}), ("pqn", {}, PPO),
]  # fmt: skip
MORE: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("ppo", {}, PPO), ("ppo", {"actions": "multi"}, PPO), ("ppo", {"obs": "image"}, PPO),
    ("pqn", {"obs": "image"}, PPO), ("dqn", {"obs": "image"}, DQN),
    ("dqn", {"obs": "key"}, {**DQN, "double": True, "dueling": True, "n_step": 3}),
    ("sac", {"obs": "image"}, SAC), ("sac", {"obs": "key"}, {**SAC, "n_step": 3}),
    ("qr_dqn", {}, DQN), ("iqn", {}, DQN), ("fqf", {}, DQN), ("c51", {}, {**DQN, "noisy": True}),
]  # fmt: skip


def config(algo: str, env: Any, options: Any, output: Path, **changes: Any) -> Any:
    return parse_config({
        "algo": algo, "env_id": "StrictMasks-v0", "env_kwargs": env, "num_envs": 4, "total_timesteps": 1024, "log": [],
        "env_workers": 0, "eval_episodes": 3, "algo_kwargs": options, "output_dir": str(output), **changes,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("algo", "env", "options"), [*FEW, *(pytest.param(*each, marks=pytest.mark.slow) for each in MORE)]
)
def test_no_invalid_action_is_taken_in_training_and_evaluation(algo, env, options, tmp_path):
    result = run_training(config(algo, env, options, tmp_path / "run", eval_interval=512))
    assert result.status == "finished"
    agent = load_agent(result.run_dir)
    assert agent.spec.action_mask is not None
    for deterministic in (True, False):
        assert agent.evaluate(5, seed=1, deterministic=deterministic)["episodes"] == 5


@pytest.mark.parametrize(("algo", "env", "options"), FEW)
def test_a_resumed_run_equals_one_without_interruption(algo, env, options, tmp_path):
    short = {"total_timesteps": 512, "eval_interval": 256, "checkpoint_interval": 128}
    whole, cut = (config(algo, env, options, tmp_path / name, **short) for name in ("whole", "cut"))
    run_training(whole)
    assert run_training(cut, callbacks=[StopAtStep(300)]).status == "stopped"
    resume_run(tmp_path / "cut")
    assert compare_runs(tmp_path / "whole", tmp_path / "cut") == []


@pytest.mark.parametrize(("algo", "env", "options"), FEW)
def test_predict_takes_the_mask_with_the_observation(algo, env, options, tmp_path):
    result = run_training(config(algo, env, options, tmp_path / "run", total_timesteps=256, eval_interval=0))
    agent, name = load_agent(result.run_dir), "place" if env.get("obs") == "key" else "obs"
    single = agent.spec.action_kind == "discrete"
    for action in range(5):
        mask = np.zeros(12)
        mask[[action] if single else [action, 5 + action]] = 1
        obs = {name: [0.1, 0.2, 0.3], "action_mask": mask}
        assert np.array_equal(agent.predict(obs), action + 3 if single else [action, action])
    fault = "action_mask has no valid action" + ("" if single else " for choice 1")
    stuck = {**obs, "action_mask": np.where(np.arange(12) < (0 if single else 5), mask, 0)}
    for given, place in ((stuck, ""), ([obs, stuck], " in row 1")):
        with pytest.raises(ValueError, match=f"^{fault}{place}; allow one"):
            agent.predict(given)
    if algo in ("ppo", "sac") and single:
        mask[7] = 1
        (probabilities,) = action_probabilities(agent, {**obs, "action_mask": mask})
        assert sorted(np.flatnonzero(probabilities)) == [4, 7]
        assert probabilities.sum() == pytest.approx(1)


def test_a_run_of_a_version_without_masks_goes_on_without_them(tmp_path, monkeypatch):
    changes = {"total_timesteps": 512, "eval_interval": 256, "checkpoint_interval": 128}
    env = {"obs": "key", "strict": False}
    with monkeypatch.context() as before:
        before.setattr(making, "with_action_masks", lambda env, like=None, *, from_info: env)
        run_training(config("ppo", env, PPO, tmp_path / "whole", **changes))
        run_training(config("ppo", env, PPO, tmp_path / "cut", **changes), callbacks=[StopAtStep(300)])
    resume_run(tmp_path / "cut")
    assert compare_runs(tmp_path / "whole", tmp_path / "cut") == []
    assert load_agent(tmp_path / "cut").spec.action_mask is None


def test_random_actions_are_uniform_over_the_valid_ones():
    spec = EnvSpec((5,), "multi_discrete", 2, action_sizes=(2, 3), action_mask=0)
    obs = torch.tensor([1.0, 0, 0, 1, 1]).expand(2, 300, 5)
    actions = RandomPolicy(spec).act(obs, generator=torch.Generator().manual_seed(0)).actions
    assert actions.shape == (2, 300, 2)
    assert actions[..., 0].unique().tolist() == [0]
    counts = torch.bincount(actions[..., 1].flatten(), minlength=3).tolist()
    assert counts[0] == 0
    assert min(counts[1:]) > 240


def test_dqn_targets_are_over_the_valid_next_actions():
    spec = EnvSpec((4,), "discrete", 3, action_mask=1)
    for double in (False, True):
        learner = DQNAlgorithm.build(spec, hidden_sizes=(), double=double, gamma=0.5)
        for network, values in ((learner.model.q, [1.0, 5.0, 9.0]), (learner.target["q"], [3.0, 2.0, 8.0])):
            parts: Any = network
            (layer,) = parts.head.advantage.layers
            torch.nn.init.zeros_(layer.weight)
            layer.bias.data.copy_(torch.tensor(values))
        rows = torch.tensor([[0.0, 1, 1, 0], [0, 1, 1, 1], [0, 0, 0, 0]])  # the last one is terminal
        batch = {"next_obs": rows, "rewards": torch.ones(3), "dones": torch.tensor([0.0, 0, 1])}
        # Without the mask the targets would be 1 + 0.5 * 8 for the first two rows.
        assert learner.loss_target(batch).tolist() == ([2.0, 5.0, 1.0] if double else [2.5, 5.0, 1.0])


@pytest.mark.parametrize("name", [name for name, each in CATALOGUE.items() if issubclass(each, DQNAlgorithm)])
def test_every_algorithm_of_the_dqn_family_chooses_valid_actions_only(name):
    learner: Any = CATALOGUE[name].build(EnvSpec((4,), "discrete", 3, action_mask=1), hidden_sizes=(4,))
    obs = torch.cat([torch.randn(60, 1), torch.eye(3).repeat(20, 1)], -1)  # one valid action each
    valid = torch.arange(3).repeat(20)
    for deterministic in (True, False):
        actions = learner.act(obs, deterministic=deterministic, generator=torch.Generator().manual_seed(0)).actions
        assert actions.equal(valid)
    assert learner.predict_next(obs)[1].equal(valid)


def test_ppo_ratios_are_of_the_masked_distribution():
    spec = EnvSpec((4,), "discrete", 3, action_mask=1)
    learner = PPOAlgorithm.build(spec, hidden_sizes=(4,), normalize_obs=True)
    obs = torch.tensor([[0.3, 1, 1, 0], [0.9, 1, 0, 0]]).view(2, 1, 4)
    steps = {name: torch.zeros(2, 1) for name in ("rewards", "dones", "truncated")}
    prepared = learner.prepare({"obs": obs, "next_obs": obs, "raw_actions": torch.tensor([[1], [0]]), **steps})
    assert prepared["log_probs"][0].exp().item() == pytest.approx(0.5, abs=0.05)  # of two valid actions
    assert prepared["log_probs"][1].item() == 0  # of one
    rows = {name: column.flatten(0, 1) for name, column in prepared.items()}
    metrics = learner.loss(rows).metrics
    assert metrics["approx_kl"].item() == pytest.approx(0, abs=1e-6)
    assert metrics["entropy"].item() == pytest.approx(np.log(2) / 2, abs=0.01)


@pytest.mark.parametrize("kind", [PPOAlgorithm, DQNAlgorithm, SACAlgorithm])
def test_an_action_that_was_always_valid_stays_so_with_normalised_observations(kind: type[Learner]):
    learner: Any = kind.build(EnvSpec((4,), "discrete", 3, action_mask=1), hidden_sizes=(4,), normalize_obs=True)
    obs = torch.tensor([[0.3, 1, 1, 0], [0.9, 1, 0, 0]]).repeat(50, 1)
    learner.normalizer.merge(obs)
    actions = learner.act(obs, generator=torch.Generator().manual_seed(0)).actions
    assert set(actions[::2].tolist()) == {0, 1}
    assert set(actions[1::2].tolist()) == {0}
