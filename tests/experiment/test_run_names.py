"""The default name of a run directory: usable on every file system, and runs with a name of before are found."""

from pathlib import Path

import pytest

from rl_training.cli.seeds import seed_configs
from rl_training.experiment.config.train_config import TrainConfig, parse_config
from rl_training.experiment.run import run_training
from rl_training.experiment.run_directory import default_directory


def config(env_id: str | None, **changes) -> TrainConfig:
    return parse_config({"algo": "dqn", "env_id": env_id, **changes})


@pytest.mark.parametrize(
    ("env_id", "name"),
    [
        ("CartPole-v1", "dqn-CartPole-v1-s0"),
        ("ALE/Pong-v5", "dqn-ALE-Pong-v5-s0"),
        ("my_envs:Grid-v0", "dqn-my_envs-Grid-v0-s0"),
        ("pkg.envs:Grid", "dqn-pkg.envs-Grid-s0"),
        ('<local> Grid in __main__ of "a?.py"', "dqn-local-Grid-in-__main__-of-a-.py-s0"),
    ],
)
def test_a_run_folder_has_no_special_characters(env_id, name):
    assert default_directory(config(env_id)) == Path("runs") / name


def test_the_name_of_a_dataset_is_made_usable():
    offline = parse_config({"algo": "bc", "dataset": "data/my logs: (1).npz"})
    assert default_directory(offline) == Path("runs/bc-my-logs-1-s0")


def test_seeds_share_a_folder_without_special_characters():
    folders = [each.output_dir for each in seed_configs(config("my_envs:Grid-v0", seed=3), [0, 1])]
    assert folders == ["runs/dqn-my_envs-Grid-v0-s0-1/seed_0", "runs/dqn-my_envs-Grid-v0-s0-1/seed_1"]


def test_a_run_with_a_name_of_before_is_continued(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "named_before.py").write_text(
        "import gymnasium\nfrom gymnasium.envs.classic_control import CartPoleEnv\n"
        "gymnasium.register('Pole-v0', CartPoleEnv, max_episode_steps=20)\n"
    )
    small = config("named_before:Pole-v0", total_timesteps=20, eval_interval=0)
    run_training(small.model_copy(update={"output_dir": "runs/dqn-named_before:Pole-v0-s0"}))
    again = run_training(small)
    assert (again.run_dir, again.trained) == (Path("runs/dqn-named_before:Pole-v0-s0"), False)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["dqn-named_before:Pole-v0-s0"]
