"""The order of the environments in a pool."""

from dataclasses import dataclass

from rl_training.streams import episode_seed


@dataclass(frozen=True)
class Layout:
    """The rows of a pool: `num_envs` environments for each seed. A population has a seed for each member."""

    seeds: tuple[int, ...]
    num_envs: int

    @property
    def count(self) -> int:
        return len(self.seeds) * self.num_envs

    def rows(self, member: int) -> slice:
        return slice(member * self.num_envs, (member + 1) * self.num_envs)

    def episode_seed(self, row: int, episode: int) -> int:
        """Returns the seed of an episode, which depends neither on the other members nor on the number of workers."""
        member, env = divmod(row, self.num_envs)
        return episode_seed(self.seeds[member], env, episode)

    def name(self, row: int) -> str:
        member, env = divmod(row, self.num_envs)
        return f"environment {env}" + (f" of member {member}" if len(self.seeds) > 1 else "")

    def names(self, rows: slice) -> str:
        """Names consecutive rows."""
        first, last = rows.start, rows.stop - 1
        if first == last:
            return self.name(first)
        if len(self.seeds) == 1:
            return f"environments {first} to {last}"
        return f"{self.name(first)} to {self.name(last)}"
