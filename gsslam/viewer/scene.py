"""What is drawn in the browser, and the panel beside it; viser has OpenCV's camera axes, as we do.

Everything is shared by all who look. Nothing that they click changes anything but the drawing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray

from gsslam.camera import Camera
from gsslam.geometry import quaternion_from_matrix
from gsslam.viewer.layers import COLOUR, sphere_colours
from gsslam.viewer.spheres import Spheres

if TYPE_CHECKING:
    import viser

Array = NDArray[np.float64]

_OURS, _LOST, _KEYFRAME, _TRUTH = (31, 111, 235), (209, 36, 47), (240, 170, 30), (150, 155, 160)
# Wider images are made smaller for the browser, pixels.
_IMAGE_WIDTH = 320
# Variances travel as half-precision numbers, whose smallest is too coarse for a square millimetre.
# So lengths travel in centimetres.
_UNIT = 0.01
# Height of the frusta in metres, for a scene whose median depth is one metre.
_FRUSTUM_SIZE = 0.12


class Scene:
    """The drawing and the panel of a server; used by one thread at a time."""

    def __init__(
        self,
        server: viser.ViserServer,
        camera: Camera,
        *,
        title: str,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_change`` is called, by a thread of the server, when something else is to be shown.

        Layers must be offered before there are any to choose from.
        """
        self._server, self._camera = server, camera
        self._size = _FRUSTUM_SIZE
        self._placed = False
        self._splats: viser.GaussianSplatHandle | None = None
        server.scene.set_up_direction("-y")
        server.gui.configure_theme(dark_mode=True, show_logo=False, show_share_button=False)
        server.gui.set_panel_label(title)
        self._numbers = server.gui.add_markdown("Waiting for the first frame")
        blank = np.zeros((camera.height, camera.width, 3), dtype=np.uint8)
        self._image = server.gui.add_image(_small(blank), label="Camera")
        self._frustum = server.scene.add_camera_frustum(
            "/camera",
            self._fov,
            camera.width / camera.height,
            thickness=2.5,
            thickness_units="screen",
            color=_OURS,
            visible=False,
        )
        self._layer = server.gui.add_dropdown("Layer", (COLOUR,), hint="What the colours stand for")
        self._follow = server.gui.add_checkbox("Follow the camera", False)
        names = ("map", "path", "keyframes", "ground truth", "image")
        with server.gui.add_folder("Show"):
            self._shown = {name: server.gui.add_checkbox(name, True) for name in names}
        controls: list[Any] = [self._layer, self._follow, *self._shown.values()]
        for control in controls:
            control.on_update(lambda event: on_change())

    @property
    def _fov(self) -> float:
        """Vertical angle of view, radians."""
        return float(2 * np.arctan2(self._camera.height / 2, self._camera.fy))

    @property
    def layer(self) -> str:
        """The layer that was chosen."""
        return str(self._layer.value)

    @property
    def follows(self) -> bool:
        """Whether the view follows the camera."""
        return bool(self._follow.value)

    def offer_layers(self, layers: Sequence[str]) -> None:
        """Let the layers be chosen from."""
        if tuple(self._layer.options) != tuple(layers):
            self._layer.options = tuple(layers)

    def place(self, T_world_camera: Array, distance: float) -> None:
        """Let who comes first look over the camera's shoulder at something so many metres away."""
        if self._placed:
            return
        self._placed = True
        self._size = _FRUSTUM_SIZE * distance
        self._frustum.scale = self._size
        behind = np.array([0.35 * distance, -0.45 * distance, -0.9 * distance, 1])
        start = self._server.initial_camera
        start.position = _triple(T_world_camera @ behind)
        start.look_at = _triple(T_world_camera @ np.array([0, 0, distance, 1]))
        start.up = _triple(-T_world_camera[:3, 1])

    def show_spheres(self, spheres: Spheres, T_world_camera: Array) -> None:
        """Draw the map in the colours of the layer."""
        visible = self._shown["map"].value
        variance = np.square(spheres.radius / _UNIT)
        attributes = {
            "centers": spheres.xyz / _UNIT,
            "covariances": variance[:, None, None] * np.eye(3, dtype=np.float32),
            "rgbs": sphere_colours(self.layer, spheres, T_world_camera),
            "opacities": spheres.opacity[:, None],
        }
        if self._splats is None:
            self._splats = self._server.scene.add_gaussian_splats(
                "/map", scale=_UNIT, visible=visible, **attributes
            )
        else:
            self._splats.set_gaussians(**attributes)
            self._splats.visible = visible

    def show_camera(
        self, T_world_camera: Array, picture: NDArray[np.uint8], *, is_lost: bool = False
    ) -> None:
        """Draw the camera with its image (H, W, 3); who follows is moved there."""
        picture = _small(picture)
        self._image.image = picture
        follows, frustum = self.follows, self._frustum
        wxyz, position = _wxyz(T_world_camera), T_world_camera[:3, 3]
        with self._server.atomic():
            frustum.wxyz, frustum.position = wxyz, position
            frustum.color = _LOST if is_lost else _OURS
            frustum.image = picture if self._shown["image"].value else None
            # Seen from its own place, the image would cover the map.
            frustum.visible = not follows
        if follows:
            self._move_viewers(wxyz, position)

    def _move_viewers(self, wxyz: Array, position: Array) -> None:
        for client in self._server.get_clients().values():
            with client.atomic():
                client.camera.fov = self._fov
                client.camera.position = position
                client.camera.wxyz = wxyz

    def show_path(self, positions: Array) -> None:
        """Draw the way of the camera, (N, 3)."""
        self._draw_path("path", positions, _OURS)

    def show_truth(self, positions: Array) -> None:
        """Draw the way that it truly went, (N, 3), in the world of the map."""
        self._draw_path("ground truth", positions, _TRUTH)

    def show_keyframes(self, T_world_camera: Array) -> None:
        """Draw the cameras of the keyframes, (K, 4, 4)."""
        c, depth = self._camera, self._size / 2
        u, v = np.array([0, c.width, c.width, 0]), np.array([0, 0, c.height, c.height])
        ones = np.ones(4)
        corners = np.stack([(u - c.cx) / c.fx, (v - c.cy) / c.fy, ones], axis=1) * depth
        edges = [(np.zeros(3), corner) for corner in corners]
        edges += [(corners[i], corners[(i + 1) % 4]) for i in range(4)]
        lines = np.array(edges)  # (8, 2, 3)
        visible = self._shown["keyframes"].value and not self.follows
        R, t = T_world_camera[:, None, None, :3, :3], T_world_camera[:, None, None, :3, 3]
        segments = (R @ lines[None, ..., None])[..., 0] + t  # (K, 8, 2, 3)
        self._draw_lines("keyframes", segments.reshape(-1, 2, 3), _KEYFRAME, 1.0, visible=visible)

    def show_numbers(self, numbers: Mapping[str, str]) -> None:
        """Write numbers, by name, into the panel."""
        rows = "\n".join(f"| {name} | {value} |" for name, value in numbers.items())
        self._numbers.content = f"| | |\n| --- | --- |\n{rows}"

    def _draw_path(self, name: str, positions: Array, colour: tuple[int, int, int]) -> None:
        if len(positions) > 1:
            segments = np.stack([positions[:-1], positions[1:]], axis=1)
            self._draw_lines(name, segments, colour, 2.5, visible=self._shown[name].value)

    def _draw_lines(
        self,
        name: str,
        segments: Array,
        colour: tuple[int, int, int],
        pixels: float,
        *,
        visible: bool,
    ) -> None:
        self._server.scene.add_line_segments(
            f"/{name.replace(' ', '_')}",
            segments.astype(np.float32),
            colour,
            thickness=pixels,
            thickness_units="screen",
            visible=visible,
        )


def _small(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    height, width = picture.shape[:2]
    if width <= _IMAGE_WIDTH:
        return picture
    size = (_IMAGE_WIDTH, max(1, round(height * _IMAGE_WIDTH / width)))
    return np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)


def _wxyz(T: Array) -> Array:
    """Return the rotation of ``T`` (4, 4) as a quaternion, the real part first."""
    return np.roll(quaternion_from_matrix(T[:3, :3]), 1)


def _triple(point: Array) -> tuple[float, float, float]:
    return float(point[0]), float(point[1]), float(point[2])
