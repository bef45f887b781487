"""Layers: what colours stand for."""

from __future__ import annotations

import numpy as np
import pytest

from gsslam.camera import Camera
from gsslam.frame import Frame
from gsslam.results import RenderedView
from gsslam.viewer import layers
from gsslam.viewer.spheres import Spheres

BLUE, RED = (48, 18, 59), (122, 4, 3)  # the ends of Turbo
UNKNOWN = (110, 110, 110)


def make_spheres(features: int = 0) -> Spheres:
    random = np.random.default_rng(3)
    parameters = random.uniform(0, 1, (8 + features, 50)).astype(np.float32)
    parameters[2] = np.linspace(1, 3, 50)
    error = np.linspace(0, 0.6, 50, dtype=np.float32)
    error[7] = np.nan
    return Spheres(parameters, error, np.linspace(-6, 6, 50, dtype=np.float32))


def test_layers_are_those_of_which_something_is_known() -> None:
    everything = ["colour", "depth", "error", "score", "features"]
    assert layers.layers_of(make_spheres(4), has_images=False) == everything
    bare = Spheres(make_spheres().parameters)
    assert layers.layers_of(bare, has_images=False) == ["colour", "depth"]
    assert layers.layers_of(bare, has_images=True) == ["colour", "depth", "error"]


def test_colour_is_that_of_the_spheres() -> None:
    spheres = make_spheres()
    colours = layers.sphere_colours("colour", spheres, np.eye(4))
    assert np.abs(colours / 255 - spheres.rgb).max() <= 0.5 / 255 + 1e-6


def test_scales_go_from_blue_to_red_and_leave_grey_what_is_unknown() -> None:
    spheres = make_spheres()
    for layer in ("depth", "error", "score"):
        colours = layers.sphere_colours(layer, spheres, np.eye(4))
        assert (tuple(colours[0]), tuple(colours[-1])) == (BLUE, RED), layer
    assert tuple(layers.sphere_colours("error", spheres, np.eye(4))[7]) == UNKNOWN


def test_depth_is_seen_from_the_camera() -> None:
    turned = np.diag([-1.0, 1.0, -1.0, 1.0])  # looks back
    turned[2, 3] = 5.0
    ahead = layers.sphere_colours("depth", make_spheres(), np.eye(4))
    back = layers.sphere_colours("depth", make_spheres(), turned)
    assert np.array_equal(ahead[0], back[-1])
    assert np.array_equal(ahead[-1], back[0])


@pytest.mark.parametrize("count", [1, 2, 16])
def test_features_that_are_alike_look_alike(count: int) -> None:
    spheres = make_spheres(count)
    spheres.features[:25] = 0.2
    spheres.features[25:] = 0.8
    colours = layers.sphere_colours("features", spheres, np.eye(4)).astype(int)
    assert np.ptp(colours[:25], axis=0).max() == np.ptp(colours[25:], axis=0).max() == 0
    assert np.abs(colours[0] - colours[-1]).max() > 60


def test_pictures_of_a_frame() -> None:
    camera = Camera(4, 3, 4, 4, 2, 1.5)
    rgb = np.full((3, 4, 3), 51, dtype=np.uint8)
    depth = np.linspace(1, 2, 12, dtype=np.float32).reshape(3, 4)
    depth[1, 1] = 0
    frame = Frame(0, 0.0, rgb, depth, camera)
    colour = np.full((3, 4, 3), 0.2, dtype=np.float32)
    colour[2, 3] = 1.4
    view = RenderedView(colour, depth, np.ones_like(depth))
    assert layers.frame_picture("colour", frame, view) is rgb
    assert layers.frame_picture("error", frame, None) is rgb
    error = layers.frame_picture("error", frame, view)
    assert (tuple(error[0, 0]), tuple(error[2, 3])) == (BLUE, RED)
    shown = layers.frame_picture("depth", frame, view)
    assert (tuple(shown[0, 0]), tuple(shown[2, 3]), tuple(shown[1, 1])) == (BLUE, RED, UNKNOWN)
    frame = Frame(0, 0.0, rgb, np.zeros_like(depth), camera)
    assert (layers.frame_picture("depth", frame, None) == UNKNOWN).all()
