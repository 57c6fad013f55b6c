"""Two games of MinAtar (Young & Tian, 2019, arXiv:1903.03176) as batched PyTorch, by their published rules.

Observations are channel-first images with the values 0 and 255. All six actions are valid, and with probability 0.1
the last action is repeated.
"""

from abc import abstractmethod

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from rl_training.envs.device.base import Outcome, State, TensorEnv
from rl_training.envs.device.draws import Draws
from rl_training.types import EnvSpec

SIZE = 10
LEFT, UP, RIGHT, DOWN = 1, 2, 3, 4  # actions; 0 and 5 (fire) do nothing in these games
STICKY = 0.1


class Game(TensorEnv):
    time_limit = 10_000  # a perfect policy would never end an episode

    def initial(self, draws: Draws) -> State:
        begun = self.begin(draws)
        return {**begun, "last_action": torch.zeros_like(next(iter(begun.values()))[..., 0])}

    def step(self, state: State, actions: Tensor, draws: Draws) -> Outcome:
        actions = torch.where(draws.uniform(1)[..., 0] < STICKY, state["last_action"], actions)
        outcome = self.play(state, actions, draws)
        return outcome._replace(state={**outcome.state, "last_action": actions})

    @abstractmethod
    def begin(self, draws: Draws) -> State:
        """The first state without `last_action`; its first entry is [envs, ...] int64."""

    @abstractmethod
    def play(self, state: State, actions: Tensor, draws: Draws) -> Outcome: ...


def cell(row: Tensor, column: Tensor) -> Tensor:
    """A board [envs, 10, 10] of bools with one cell set in each."""
    return one_hot(row * SIZE + column, SIZE * SIZE).unflatten(-1, (SIZE, SIZE)).bool()


def image(*boards: Tensor) -> Tensor:
    return torch.stack(boards, -3).to(torch.uint8) * 255


class Breakout(Game):
    spec = EnvSpec((4, SIZE, SIZE), "discrete", 6, obs_dtype="uint8")

    def begin(self, draws: Draws) -> State:
        right = draws.integers(1, 2)
        ball = torch.cat((torch.full_like(right, 3), 9 * right), -1)
        bricks = torch.zeros(len(right), SIZE, SIZE, dtype=torch.bool, device=right.device)
        bricks[:, 1:4] = True
        return {
            "ball": ball, "last": ball, "direction": 2 + right[..., 0], "paddle": torch.full_like(right[..., 0], 4),
            "bricks": bricks, "struck": torch.zeros_like(right[..., 0], dtype=torch.bool),
        }  # fmt: skip

    def play(self, state: State, actions: Tensor, draws: Draws) -> Outcome:
        paddle = (state["paddle"] - (actions == LEFT).long() + (actions == RIGHT).long()).clamp(0, 9)
        old_row, old_column = state["ball"].unbind(-1)
        direction, bricks = state["direction"], state["bricks"]
        # Directions: 0 up left, 1 up right, 2 down right, 3 down left. `^ 1` mirrors left and right, 3 - d up and down.
        right, down = (direction == 1) | (direction == 2), direction >= 2
        row, column = old_row + 2 * down.long() - 1, old_column + 2 * right.long() - 1
        direction = torch.where((column < 0) | (column > 9), direction ^ 1, direction)
        column = column.clamp(0, 9)
        top = row < 0
        row = row.clamp(min=0)
        at = cell(row, column)
        brick = ~top & (bricks & at).any(-1).any(-1)
        hit = brick & ~state["struck"]
        bricks = bricks & ~(at & hit[:, None, None])
        bottom = ~top & ~brick & (row == 9)
        cleared = bottom & ~bricks.any(-1).any(-1)
        wall = torch.zeros_like(bricks)
        wall[:, 1:4] = True
        bricks = bricks | (wall & cleared[:, None, None])
        centre = bottom & (old_column == paddle)
        edge = bottom & ~centre & (column == paddle)
        direction = torch.where(top | hit | centre, 3 - direction, torch.where(edge, (direction + 2) % 4, direction))
        row = torch.where(hit | centre | edge, old_row, row)
        return Outcome(
            {"ball": torch.stack((row, column), -1), "last": state["ball"], "direction": direction, "paddle": paddle,
             "bricks": bricks, "struck": brick},
            hit.float(), bottom & ~centre & ~edge,
        )  # fmt: skip

    def observe(self, state: State) -> Tensor:
        paddle = cell(torch.full_like(state["paddle"], 9), state["paddle"])
        return image(paddle, cell(*state["ball"].unbind(-1)), cell(*state["last"].unbind(-1)), state["bricks"])


class Freeway(Game):
    spec = EnvSpec((7, SIZE, SIZE), "discrete", 6, obs_dtype="uint8")
    CARS, PAUSE, FRAMES = 8, 3, 2500  # the player moves at most every third frame

    def begin(self, draws: Draws) -> State:
        speeds = self.new_speeds(draws)
        bottom = torch.full_like(speeds[..., 0], 9)
        return {
            "cars": torch.zeros_like(speeds), "speeds": speeds, "timers": speeds.abs(), "player": bottom,
            "pause": torch.full_like(bottom, self.PAUSE), "left": torch.full_like(bottom, self.FRAMES),
        }  # fmt: skip

    def new_speeds(self, draws: Draws) -> Tensor:
        """Frames between two moves of each car, 1 to 5; negative where it drives to the left."""
        return (1 + draws.integers(self.CARS, 5)) * (2 * draws.integers(self.CARS, 2) - 1)

    def play(self, state: State, actions: Tensor, draws: Draws) -> Outcome:
        moving = ((actions == UP) | (actions == DOWN)) & (state["pause"] == 0)
        pause = torch.where(moving, self.PAUSE, state["pause"])
        player = (state["player"] + moving.long() * torch.where(actions == UP, -1, 1)).clamp(0, 9)
        won = player == 0
        speeds = torch.where(won[:, None], self.new_speeds(draws), state["speeds"])
        timers = torch.where(won[:, None], speeds.abs(), state["timers"])
        player = torch.where(won, 9, player)
        ready = timers == 0
        moved = (state["cars"] + speeds.sign()) % SIZE
        cars = torch.where(ready, moved, state["cars"])
        lanes = torch.arange(1, self.CARS + 1, device=cars.device)
        # A hit sends the player to row 9, where no car drives, so the order of the cars does not matter.
        hit = (((state["cars"] == 4) | (cars == 4)) & (lanes == player[:, None])).any(-1)
        left = state["left"] - 1
        new = {
            "cars": cars, "speeds": speeds, "timers": torch.where(ready, speeds.abs(), timers - 1),
            "player": torch.where(hit, 9, player), "pause": pause - (pause > 0).long(), "left": left,
        }  # fmt: skip
        return Outcome(new, won.float(), left < 0)

    def observe(self, state: State) -> Tensor:
        middle = torch.full_like(state["player"], 4)
        cars, trails = (one_hot(x % SIZE, SIZE) for x in (state["cars"], state["cars"] - state["speeds"].sign()))
        boards = [trails * (state["speeds"].abs() == speed).unsqueeze(-1) for speed in range(1, 6)]
        lanes = [torch.nn.functional.pad(board, (0, 0, 1, 1)).bool() for board in (cars, *boards)]
        return image(cell(state["player"], middle), *lanes)
