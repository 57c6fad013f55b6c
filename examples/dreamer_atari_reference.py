"""Dreamer on Atari Breakout, compared with DQN. Needs the extra `atari`; long runs need a GPU.

python examples/dreamer_atari_reference.py --steps 50000
"""

from typing import Any

from reference import make_parser, train_and_score

from rl_training import DQN, Dreamer, load_config

MAX_FRAMES = 108_000  # of a game, as in published scores


def breakout(algo: str, frames: int) -> dict[str, Any]:
    config = load_config(f"{algo}/breakout_atari")
    return {**config, "env_kwargs": {**config["env_kwargs"], "max_num_frames_per_episode": frames}, "eval_interval": 0}


if __name__ == "__main__":
    arguments = make_parser(__file__, __doc__, steps=50_000).parse_args()
    frames = min(MAX_FRAMES, 100 * arguments.steps)  # a short trial is evaluated on short games
    train_and_score(DQN, breakout("dqn", frames), arguments, episodes=5)
    train_and_score(Dreamer, breakout("dreamer", frames), arguments, episodes=5)
