"""How far a sphere's circle is from its exact projection, by angle off the axis and by fx / fy.

Prints the two tables of docs/conventions.md. Run: python -m scripts.projection_error
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Degrees; the corner of a 640x480 image of TUM's cameras lies at 38.
ANGLES = (0, 10, 20, 30, 40)
# fx, fy in pixels.
CAMERAS = {"TUM fr1": (517.3, 516.5), "TUM fr2": (520.9, 521.0), "TUM fr3": (535.4, 539.2)}


def ewa_covariance(point: Array, radius: float, fx: float, fy: float) -> Array:
    """Return the 2D covariance (2, 2), pixels^2, of a sphere at camera point ``point`` (3,).

    Zwicker et al., EWA splatting (2002), equation 31: the projection linearised at the centre.
    """
    x, y, z = point
    J = np.array([[fx / z, 0, -fx * x / z**2], [0, fy / z, -fy * y / z**2]])
    covariance: Array = radius**2 * J @ J.T
    return covariance


def scalar_covariance(point: Array, radius: float, fx: float, fy: float) -> Array:
    """Return the covariance that gsslam takes instead: a circle's."""
    return float(fx * fy * (radius / point[2]) ** 2) * np.eye(2)


def footprint_error(approximate: Array, exact: Array) -> float:
    """Return the relative L2 distance of two centred 2D Gaussians of the same height."""

    def product(a: Array, b: Array) -> float:
        """Return the integral of the product, without the factor 2 pi."""
        return float(np.linalg.det(np.linalg.inv(a) + np.linalg.inv(b)) ** -0.5)

    square = product(approximate, approximate) - 2 * product(approximate, exact)
    return float(np.sqrt((square + product(exact, exact)) / product(exact, exact)))


def off_axis_rows() -> list[str]:
    """Return the table rows of the dropped stretch away from the axis, fx = fy."""
    rows = []
    for angle in ANGLES:
        point = np.array([np.tan(np.deg2rad(angle)), 0, 1])
        exact, ours = (f(point, 0.01, 500, 500) for f in (ewa_covariance, scalar_covariance))
        across, along = np.sqrt(np.linalg.eigvalsh(exact) / ours[0, 0])
        error = footprint_error(ours, exact)
        rows.append(
            f"| {angle}° | {100 * (along - 1):.1f} % | {100 * (across - 1):.1f} % "
            f"| {100 * error:.1f} % |"
        )
    return rows


def focal_rows() -> list[str]:
    """Return the table rows of the single focal length, on the axis."""
    rows = []
    for name, (fx, fy) in CAMERAS.items():
        point = np.array([0.0, 0.0, 1.0])
        exact, ours = (f(point, 0.01, fx, fy) for f in (ewa_covariance, scalar_covariance))
        width, height = np.sqrt(np.diag(ours) / np.diag(exact)) - 1
        error = footprint_error(ours, exact)
        rows.append(
            f"| {name} | {fx / fy:.4f} | {100 * width:+.2f} % | {100 * height:+.2f} % "
            f"| {100 * error:.2f} % |"
        )
    return rows


def main() -> None:
    """Print both tables."""
    print("| off axis | dropped stretch, radial | tangential | footprint, relative L2 |")
    print("| --- | --- | --- | --- |", *off_axis_rows(), sep="\n")
    print("\n| camera | fx / fy | width | height | footprint, relative L2 |")
    print("| --- | --- | --- | --- | --- |", *focal_rows(), sep="\n")


if __name__ == "__main__":
    main()
