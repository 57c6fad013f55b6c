"""Draws MuJoCo scenes without OpenGL, in simple shapes, for machines that have no library to render."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

TILES = 14  # metres of floor to each side
SKY, FLOORS = (70, 100, 130), ((200, 205, 200), (120, 130, 125))
LIGHT = np.array([0.3, -0.4, 0.85])


class Sketch:
    """Draws the scene of a Gymnasium MuJoCo environment, from the camera that it renders with."""

    def __init__(self, core: Any) -> None:
        import mujoco

        renderer = core.mujoco_renderer
        self.model, self.data = core.model, core.data
        self.width, self.height = int(renderer.width), int(renderer.height)
        self.scene, self.option = mujoco.MjvScene(self.model, 2000), mujoco.MjvOption()
        self.camera = mujoco.MjvCamera()
        if getattr(renderer, "camera_id", -1) >= 0:
            self.camera.type, self.camera.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, renderer.camera_id
            return
        mujoco.mjv_defaultFreeCamera(self.model, self.camera)
        for name, value in (renderer.default_cam_config or {}).items():
            if name == "trackbodyid" and value >= 0:
                self.camera.type = mujoco.mjtCamera.mjCAMERA_TRACKING
            if isinstance(value, np.ndarray):
                getattr(self.camera, name)[:] = value
            else:
                setattr(self.camera, name, value)

    def render(self) -> np.ndarray:
        import mujoco
        from PIL import Image, ImageDraw

        mujoco.mjv_updateScene(
            self.model, self.data, self.option, None, self.camera, mujoco.mjtCatBit.mjCAT_ALL, self.scene
        )
        view = View.of(self.scene.camera[0], self.width, self.height)
        image = Image.new("RGB", (self.width, self.height), SKY)
        draw = ImageDraw.Draw(image)
        shapes = [geom for geom in self.scene.geoms[: self.scene.ngeom] if geom.rgba[3] > 0]
        planes = [geom for geom in shapes if geom.type == mujoco.mjtGeom.mjGEOM_PLANE]
        for geom in planes[:1]:
            _draw_floor(draw, view, float(geom.pos[2]))
        solid = [geom for geom in shapes if geom.type != mujoco.mjtGeom.mjGEOM_PLANE]
        for geom in sorted(solid, key=lambda each: -view.depth(each.pos)):
            _draw_geom(draw, view, geom)
        return np.asarray(image)


class View(NamedTuple):
    """A perspective camera."""

    position: np.ndarray
    forward: np.ndarray
    up: np.ndarray
    right: np.ndarray
    scale: float  # pixels of one metre at a distance of one metre
    centre: tuple[float, float]

    @classmethod
    def of(cls, camera: Any, width: int, height: int) -> View:
        position, forward, up = (np.array(each, float) for each in (camera.pos, camera.forward, camera.up))
        scale = height * camera.frustum_near / (camera.frustum_top - camera.frustum_bottom)
        return cls(position, forward, up, np.cross(forward, up), float(scale), (width / 2, height / 2))

    def depth(self, point: Any) -> float:
        return float((np.asarray(point) - self.position) @ self.forward)

    def point(self, point: Any) -> tuple[float, float] | None:
        """Projects a point to pixels; None behind the camera."""
        offset, depth = np.asarray(point) - self.position, self.depth(point)
        if depth < 0.05:
            return None
        size = self.scale / depth
        return self.centre[0] + size * float(offset @ self.right), self.centre[1] - size * float(offset @ self.up)


def _draw_floor(draw: Any, view: View, height: float) -> None:
    middle = np.round(view.position + 4 * view.forward)
    for x in range(int(middle[0]) - TILES, int(middle[0]) + TILES):
        for y in range(int(middle[1]) - TILES, int(middle[1]) + TILES):
            corners = [view.point((x + i, y + j, height)) for i, j in ((0, 0), (1, 0), (1, 1), (0, 1))]
            visible = [corner for corner in corners if corner is not None]
            if len(visible) == 4:
                draw.polygon(visible, fill=FLOORS[(x + y) % 2])


def _draw_geom(draw: Any, view: View, geom: Any) -> None:
    import mujoco

    kinds, position, turn = mujoco.mjtGeom, np.array(geom.pos), np.array(geom.mat).reshape(3, 3)
    size, colour = np.array(geom.size), _shaded(geom.rgba, turn)
    if geom.type in (kinds.mjGEOM_CAPSULE, kinds.mjGEOM_CYLINDER):
        steps = np.linspace(-1, 1, 24)[:, None] * size[2] * turn[:, 2]
        spheres = [(point, size[0]) for point in sorted(position + steps, key=lambda each: -view.depth(each))]
    elif geom.type == kinds.mjGEOM_BOX:
        _draw_box(draw, view, position, turn * size, colour)
        return
    else:  # a sphere, an ellipsoid, or the bounds of a mesh
        spheres = [(position, float(size.mean()))]
    for point, radius in spheres:
        centre = view.point(point)
        if centre is not None:
            pixels = view.scale * radius / view.depth(point)
            (x, y), r = centre, max(1.0, pixels)
            draw.ellipse((x - r, y - r, x + r, y + r), fill=colour)


def _draw_box(draw: Any, view: View, position: np.ndarray, axes: np.ndarray, colour: tuple[int, ...]) -> None:
    corners = [view.point(position + axes @ signs) for signs in _signs()]
    visible = [corner for corner in corners if corner is not None]
    if len(visible) == 8:
        draw.polygon(_hull(visible), fill=colour)


def _signs() -> Iterator[np.ndarray]:
    return (np.array([x, y, z], float) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1))


def _hull(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The convex hull, in order (Andrew's monotone chain)."""
    ordered = sorted(points)
    halves = []
    for run in (ordered, ordered[::-1]):
        half: list[tuple[float, float]] = []
        for point in run:
            while len(half) > 1 and _turns(half[-2], half[-1], point) <= 0:
                half.pop()
            half.append(point)
        halves += half[:-1]
    return halves


def _turns(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def _shaded(rgba: Any, turn: np.ndarray) -> tuple[int, ...]:
    light = 0.75 + 0.25 * float(np.abs(turn.T @ LIGHT).max())
    return tuple(int(255 * min(1.0, float(part) * light)) for part in rgba[:3])
