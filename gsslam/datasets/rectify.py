"""Removal of lens distortion and change of size, by tables computed once for a sequence."""

from __future__ import annotations

from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from gsslam.camera import Camera

Array = NDArray[np.float64]
# A depth image in its own unit.
RawDepth = NDArray[np.uint16] | NDArray[np.float32]

_UNDISTORTED = (0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Calibration:
    """A camera as it was calibrated: pinhole and radial-tangential distortion."""

    # Its principal point follows the convention of Camera.
    camera: Camera
    # k1, k2, p1, p2, k3; or these and the denominator's k4, k5, k6.
    distortion: tuple[float, ...] = _UNDISTORTED

    @property
    def is_distorted(self) -> bool:
        """Whether any coefficient differs from 0."""
        return any(self.distortion)

    def pinhole(self) -> Camera:
        """Return the undistorted camera of the same size whose every pixel the lens has seen.

        Its focal length is the calibrated one or, where the image's border would lie outside of
        what the lens saw, the least longer one (to 1e-4) that keeps it inside.
        """
        if not self.is_distorted or self._sees_border_of(self.camera):
            return self.camera
        shorter, longer = 1.0, 2.0
        while longer - shorter > 1e-4:
            middle = (shorter + longer) / 2
            if self._sees_border_of(self._zoomed(middle)):
                longer = middle
            else:
                shorter = middle
        return self._zoomed(longer)

    def _zoomed(self, factor: float) -> Camera:
        return replace(self.camera, fx=self.camera.fx * factor, fy=self.camera.fy * factor)

    def _sees_border_of(self, target: Camera) -> bool:
        x, y = self.source_positions(target)
        border = np.ones(x.shape, dtype=bool)
        border[1:-1, 1:-1] = False
        x, y, width, height = x[border], y[border], self.camera.width, self.camera.height
        # Half a pixel inside, so that interpolation has all its neighbours.
        inside = (x >= 0.5) & (x <= width - 0.5) & (y >= 0.5) & (y <= height - 0.5)
        return bool(inside.all())

    def source_positions(self, target: Camera) -> tuple[Array, Array]:
        """Return where each pixel centre of the pinhole ``target`` lies in the distorted image.

        Two (H, W) arrays of x and y, in pixels whose centres lie at integer + 0.5.
        """
        x = (np.arange(target.width) + 0.5 - target.cx) / target.fx  # (W,)
        y = (np.arange(target.height) + 0.5 - target.cy) / target.fy  # (H,)
        xx, yy = np.meshgrid(x, y)
        xd, yd = distorted(xx, yy, self.distortion)
        return xd * self.camera.fx + self.camera.cx, yd * self.camera.fy + self.camera.cy


def distorted(x: Array, y: Array, distortion: tuple[float, ...]) -> tuple[Array, Array]:
    """Return where the lens puts the normalised image point (x, y): Brown (1966), with k1 to k3.

    Of eight coefficients the last three, k4 to k6, make the radial factor a fraction, as in OpenCV
    and in ROS's "rational_polynomial".
    """
    k1, k2, p1, p2, k3 = distortion[:5]
    r2 = x * x + y * y
    radial = 1 + r2 * (k1 + r2 * (k2 + r2 * k3))
    if len(distortion) > 5:
        k4, k5, k6 = distortion[5:8]
        radial = radial / (1 + r2 * (k4 + r2 * (k5 + r2 * k6)))
    return (
        x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x),
        y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y,
    )


class ColourRectifier:
    """Turns the distorted colour image into that of the pinhole ``target``.

    The target is the source's pinhole at any size (``source.pinhole().resized``). Pixels that the
    lens did not see repeat the nearest border pixel: black ones would be taken for dark surfaces.
    """

    def __init__(self, source: Calibration, target: Camera) -> None:
        self._target_size = (target.width, target.height)
        self._shrinks = target.width < source.camera.width
        self._maps: tuple[cv2.typing.MatLike, cv2.typing.MatLike] | None = None
        if source.is_distorted:
            full_size = target.resized(source.camera.width, source.camera.height)
            x, y = source.source_positions(full_size)
            # OpenCV puts pixel centres at integers.
            xy = np.stack([x - 0.5, y - 0.5], axis=-1).astype(np.float32)
            self._maps = cv2.convertMaps(xy, np.empty(0), cv2.CV_16SC2)

    def __call__(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the image (H', W', 3) of the target from the distorted one (H, W, 3)."""
        result: cv2.typing.MatLike = image
        if self._maps is not None:
            result = cv2.remap(
                result, *self._maps, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE
            )
        if (result.shape[1], result.shape[0]) != self._target_size:
            # Averaging over areas keeps detail finer than the new pixels from aliasing.
            kernel = cv2.INTER_AREA if self._shrinks else cv2.INTER_LINEAR
            result = cv2.resize(result, self._target_size, interpolation=kernel)
        return np.asarray(result, dtype=np.uint8)


class DepthRectifier:
    """Samples a depth image at the pixels of a pinhole camera at the same place.

    The depth camera is mostly the distorted colour camera itself, to which depth was registered;
    it may have any resolution. Takes the nearest measurement and never a mean: between two
    surfaces there is none.
    """

    def __init__(self, source: Calibration, target: Camera, depth_scale: float) -> None:
        x, y = source.source_positions(target)
        columns, rows = np.floor(x).astype(np.int64), np.floor(y).astype(np.int64)
        width, height = source.camera.width, source.camera.height
        inside = (columns >= 0) & (columns < width) & (rows >= 0) & (rows < height)
        # (H', W') position of each target pixel's measurement in the flattened source.
        self._source_index = np.where(inside, rows * width + columns, 0)
        # (H', W') metres for each unit of the file; 0 where the lens did not see.
        self._metres = np.where(inside, 1 / depth_scale, 0).astype(np.float32)

    def __call__(self, raw: RawDepth) -> NDArray[np.float32]:
        """Return the depth (H', W') in metres of the target from the raw image (H, W)."""
        depth: NDArray[np.float32] = raw.ravel()[self._source_index] * self._metres
        return depth
