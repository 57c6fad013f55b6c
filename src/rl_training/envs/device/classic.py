"""Gymnasium's classic control as batched PyTorch, with its equations, types and constants."""

import math
from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from rl_training.envs.device.base import Outcome, State, TensorEnv
from rl_training.envs.device.draws import Draws
from rl_training.types import EnvSpec


class VectorState(TensorEnv):
    """Environments whose state is one vector `x` per row, float64 as in Gymnasium."""

    def initial(self, draws: Draws) -> State:
        return {"x": self.start(draws)}

    def observe(self, state: State) -> Tensor:
        return self.vector(*state["x"].unbind(-1)).float()

    @abstractmethod
    def start(self, draws: Draws) -> Tensor:
        """Returns the first vector of an episode for each row."""

    def vector(self, *state: Tensor) -> Tensor:
        """The observation; the state itself by default."""
        return torch.stack(state, -1)


class CartPole(VectorState):
    spec = EnvSpec((4,), "discrete", 2)
    time_limit = 500
    GRAVITY, CART, POLE, LENGTH, FORCE, SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02  # LENGTH is half the pole's
    MAX_ANGLE, MAX_POSITION = 12 * 2 * math.pi / 360, 2.4

    def start(self, draws: Draws) -> Tensor:
        return draws.uniform(4, -0.05, 0.05)

    def step(self, state: State, actions: Tensor, draws: Draws) -> Outcome:
        position, velocity, angle, spin = state["x"].unbind(-1)
        mass, moment = self.POLE + self.CART, self.POLE * self.LENGTH
        force = torch.where(actions == 1, self.FORCE, -self.FORCE).double()
        cos, sin = angle.cos(), angle.sin()
        pushed = (force + moment * spin.square() * sin) / mass
        turned = (self.GRAVITY * sin - cos * pushed) / (self.LENGTH * (4.0 / 3.0 - self.POLE * cos.square() / mass))
        moved = pushed - moment * turned * cos / mass
        position, velocity = position + self.SECONDS * velocity, velocity + self.SECONDS * moved
        angle, spin = angle + self.SECONDS * spin, spin + self.SECONDS * turned
        fallen = (position.abs() > self.MAX_POSITION) | (angle.abs() > self.MAX_ANGLE)
        x = torch.stack((position, velocity, angle, spin), -1)
        return Outcome({"x": x}, torch.ones_like(position, dtype=torch.float32), fallen)


class Pendulum(VectorState):
    spec = EnvSpec((3,), "box", 1, action_shape=(1,), action_low=(-2.0,), action_high=(2.0,))
    time_limit = 200
    GRAVITY, SECONDS, MAX_SPEED, MAX_TORQUE = 10.0, 0.05, 8.0, 2.0

    def start(self, draws: Draws) -> Tensor:
        return torch.cat((draws.uniform(1, -math.pi, math.pi), draws.uniform(1, -1.0, 1.0)), -1)

    def step(self, state: State, actions: Tensor, draws: Draws) -> Outcome:
        angle, spin = state["x"].unbind(-1)
        torque = actions[..., 0].clamp(-1, 1) * self.MAX_TORQUE
        upright = (angle + math.pi) % (2 * math.pi) - math.pi
        cost = upright.square() + 0.1 * spin.square() + 0.001 * torque.square()
        spin = spin + (3 * self.GRAVITY / 2 * angle.sin() + (3.0 * torque).double()) * self.SECONDS
        spin = spin.clamp(-self.MAX_SPEED, self.MAX_SPEED)
        x = torch.stack((angle + spin * self.SECONDS, spin), -1)
        return Outcome({"x": x}, -cost.float(), torch.zeros_like(spin, dtype=torch.bool))

    def vector(self, *state: Tensor) -> Tensor:
        angle, spin = state
        return torch.stack((angle.cos(), angle.sin(), spin), -1)


class Acrobot(VectorState):
    spec = EnvSpec((6,), "discrete", 3)
    time_limit = 500
    GRAVITY, SECONDS = 9.8, 0.2
    MAX_SPEEDS: ClassVar = (4 * math.pi, 9 * math.pi)

    def start(self, draws: Draws) -> Tensor:
        return draws.uniform(4, -0.1, 0.1).float().double()

    def step(self, state: State, actions: Tensor, draws: Draws) -> Outcome:
        x, torque, half = state["x"], (actions - 1).double(), self.SECONDS / 2
        k1 = self.slope(x, torque)
        k2 = self.slope(x + half * k1, torque)
        k3 = self.slope(x + half * k2, torque)
        k4 = self.slope(x + self.SECONDS * k3, torque)
        first, second, *speeds = (x + self.SECONDS / 6.0 * (k1 + 2 * k2 + 2 * k3 + k4)).unbind(-1)
        first, second = wrapped(first), wrapped(second)
        speeds = [speed.clamp(-most, most) for speed, most in zip(speeds, self.MAX_SPEEDS, strict=True)]
        raised = -first.cos() - (second + first).cos() > 1.0
        return Outcome({"x": torch.stack((first, second, *speeds), -1)}, raised.float() - 1, raised)

    def slope(self, x: Tensor, torque: Tensor) -> Tensor:
        """The time derivative of the state: equations of Sutton & Barto's book for links of mass and length 1."""
        first, second, spin1, spin2 = x.unbind(-1)
        inertia1 = 0.25 + (1.25 + second.cos()) + 2
        inertia2 = 0.25 + 0.5 * second.cos() + 1
        gravity2 = 0.5 * self.GRAVITY * (first + second - math.pi / 2).cos()
        gravity1 = (
            -0.5 * spin2.square() * second.sin() - spin2 * spin1 * second.sin()
            + 1.5 * self.GRAVITY * (first - math.pi / 2).cos() + gravity2
        )  # fmt: skip
        gained2 = torque + inertia2 / inertia1 * gravity1 - 0.5 * spin1.square() * second.sin() - gravity2
        gained2 = gained2 / (0.25 + 1 - inertia2.square() / inertia1)
        gained1 = -(inertia2 * gained2 + gravity1) / inertia1
        return torch.stack((spin1, spin2, gained1, gained2), -1)

    def vector(self, *state: Tensor) -> Tensor:
        first, second, spin1, spin2 = state
        return torch.stack((first.cos(), first.sin(), second.cos(), second.sin(), spin1, spin2), -1)


def wrapped(angle: Tensor) -> Tensor:
    """The angle in [-pi, pi]; a step turns a link by less than two rounds."""
    for _ in range(2):
        angle = angle - 2 * math.pi * (angle > math.pi) + 2 * math.pi * (angle < -math.pi)
    return angle


class MountainCar(VectorState):
    spec = EnvSpec((2,), "discrete", 3)
    time_limit = 200
    FORCE, GRAVITY, MAX_SPEED, LEFT, RIGHT, GOAL = 0.001, 0.0025, 0.07, -1.2, 0.6, 0.5

    def start(self, draws: Draws) -> Tensor:
        position = draws.uniform(1, -0.6, -0.4)
        return torch.cat((position, torch.zeros_like(position)), -1)

    def step(self, state: State, actions: Tensor, draws: Draws) -> Outcome:
        position, velocity = state["x"].unbind(-1)
        velocity = velocity + ((actions - 1).double() * self.FORCE - (3 * position).cos() * self.GRAVITY)
        position, velocity = self.moved(position, velocity)
        arrived = (position >= self.GOAL) & (velocity >= 0)
        rewards = torch.full_like(position, -1.0, dtype=torch.float32)
        return Outcome({"x": torch.stack((position, velocity), -1)}, rewards, arrived)

    def moved(self, position: Tensor, velocity: Tensor) -> tuple[Tensor, Tensor]:
        velocity = velocity.clamp(-self.MAX_SPEED, self.MAX_SPEED)
        position = (position + velocity).clamp(self.LEFT, self.RIGHT)
        return position, torch.where((position == self.LEFT) & (velocity < 0), 0.0, velocity)


class MountainCarContinuous(MountainCar):
    spec = EnvSpec((2,), "box", 1, action_shape=(1,), action_low=(-1.0,), action_high=(1.0,))
    time_limit = 999
    POWER, GOAL = 0.0015, 0.45

    def start(self, draws: Draws) -> Tensor:
        return super().start(draws).float()

    def step(self, state: State, actions: Tensor, draws: Draws) -> Outcome:
        position, velocity = state["x"].unbind(-1)  # float32, as in Gymnasium
        force = actions[..., 0].clamp(-1, 1)
        slope = (0.0025 * (3 * position).double().cos()).float()
        position, velocity = self.moved(position, velocity + (force * self.POWER - slope))
        arrived = (position >= self.GOAL) & (velocity >= 0)
        rewards = 100.0 * arrived - 0.1 * force.square()
        return Outcome({"x": torch.stack((position, velocity), -1)}, rewards, arrived)
