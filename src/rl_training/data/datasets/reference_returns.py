"""D4RL normalized scores (Fu et al., 2020): 0 is a random policy, 100 an expert."""

import re

RANDOM_AND_EXPERT_RETURNS = {
    "halfcheetah": (-280.178953, 12135.0), "hopper": (-20.272305, 3234.3), "walker2d": (1.629008, 4592.3),
    "ant": (-325.6, 3879.7), "antmaze": (0.0, 1.0), "kitchen": (0.0, 4.0), "minigrid-fourrooms": (0.01442, 2.89685),
    "pen": (96.262799, 3076.8331017826877), "hammer": (-274.856578, 12794.134825156867),
    "door": (-56.512833, 2880.5693087298737), "relocate": (-6.425911, 4233.877797728884),
    "maze2d-open": (0.01, 20.66), "maze2d-open-dense": (11.17817, 27.16653862),
    "maze2d-umaze": (23.85, 161.86), "maze2d-umaze-dense": (68.537689, 193.66285642),
    "maze2d-medium": (13.13, 277.39), "maze2d-medium-dense": (44.264742, 297.45525478),
    "maze2d-large": (6.7, 273.99), "maze2d-large-dense": (30.569041, 303.48573827),
}  # fmt: skip


def normalized_score(env_id: str, return_: float) -> float | None:
    """100 * (return - random) / (expert - random), or None if D4RL has no reference returns."""
    # `env_id` is a Gymnasium id of any version ("Hopper-v5") or a D4RL name ("hopper-medium-replay-v2").
    # AdroitHandPen-v1 and AntMaze_UMaze-v4 do not match: their episodes are longer than D4RL's.
    words = re.sub(r"-v\d+$", "", env_id.lower()).split("-")
    for count in range(len(words), 0, -1):
        if references := RANDOM_AND_EXPERT_RETURNS.get("-".join(words[:count])):
            random, expert = references
            return 100 * (return_ - random) / (expert - random)
    return None
