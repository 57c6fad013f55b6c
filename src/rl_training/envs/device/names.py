"""Names of the built-in device environments, each by the id of the Gymnasium environment that it equals."""

HOME = "rl_training.envs.device"
BUILT_IN = {
    "CartPole-v1": "classic:CartPole",
    "Pendulum-v1": "classic:Pendulum",
    "Acrobot-v1": "classic:Acrobot",
    "MountainCar-v0": "classic:MountainCar",
    "MountainCarContinuous-v0": "classic:MountainCarContinuous",
    "minatar_games:MinAtar/Breakout-v0": "minatar:Breakout",
    "minatar_games:MinAtar/Freeway-v0": "minatar:Freeway",
}
_CLASSES = frozenset(f"{HOME}.{name}" for name in BUILT_IN.values())


def is_built_in(env_id: object) -> bool:
    """Whether this is `module:Name` of a class above, which needs no trust; other names in its module may."""
    return isinstance(env_id, str) and env_id in _CLASSES
