"""Queries of spheres learned through the rasteriser: on a wall of two materials, seen by itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import cosine_similarity, normalize

from gsslam.camera import Camera
from gsslam.errors import NativeError
from gsslam.features import FeatureField, FeatureHead, distillation_loss, heat_map
from gsslam.gaussian_map import GaussianMap
from gsslam.raster import constants as c
from gsslam.raster.reference import rasterize_reference

CAMERA = Camera(64, 48, 60.0, 60.0, 32.0, 24.0)


def wall() -> torch.Tensor:
    """Opaque spheres (8, N) on the plane z = 2."""
    y, x = torch.meshgrid(
        torch.linspace(-0.9, 0.9, 28), torch.linspace(-1.2, 1.2, 36), indexing="ij"
    )
    rows = [x.flatten(), y.flatten(), torch.full((x.numel(),), 2.0)]
    rows += [torch.full((x.numel(),), value) for value in (-3.2, 3.0, 0.5, 0.5, 0.5)]
    return torch.stack(rows)


def two_materials(channels: int = 24) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Features (C, 6, 8) of the wall, of its left half and of its right half."""
    generator = torch.Generator().manual_seed(0)
    left, right = normalize(torch.randn(2, channels, generator=generator), dim=1)
    image = torch.cat(
        [left[:, None, None].expand(-1, 6, 4), right[:, None, None].expand(-1, 6, 4)], 2
    )
    return image.contiguous(), left, right


def make_field() -> FeatureField:
    image, *_ = two_materials()
    generator = torch.Generator().manual_seed(1)
    atoms = image.flatten(1).mT.repeat(2, 1)
    atoms = atoms + 0.1 * torch.randn(atoms.shape, generator=generator)
    spheres = GaussianMap(wall().shape[1] + 5, num_features=8)
    spheres.insert(wall())
    return FeatureField(spheres, CAMERA, FeatureHead(atoms, dim=8), stride=2)


def learned() -> tuple[FeatureField, list[float]]:
    field, (image, *_) = make_field(), two_materials()
    pose = np.eye(4)
    field.begin(pose, image)
    return field, [field.learn(pose, image) for _ in range(25)]


def test_learns_what_it_is_shown_and_decodes_it_from_elsewhere() -> None:
    field, losses = learned()
    image, left, right = two_materials()
    assert losses[-1] < 0.7 * losses[0]
    decoded, silhouette = field.decode(np.eye(4))
    assert silhouette.mean() > 0.9
    assert cosine_similarity(decoded, field.target(image), dim=0).mean() > 0.95
    moved = np.eye(4)
    moved[0, 3] = 0.4  # the camera moves left: what was in the middle is right of it
    heat = heat_map(field.decode(moved)[0], left, (left + right) / 2)
    assert heat[4:-4, 6:18].mean() > 0.8
    assert heat[4:-4, 24:30].mean() < -0.5


def test_the_same_views_give_the_same_bytes() -> None:
    fields = [learned()[0] for _ in range(2)]
    assert torch.equal(fields[0].map.queries, fields[1].map.queries)


def test_spheres_out_of_view_keep_no_query() -> None:
    field, (image, *_) = make_field(), two_materials()
    behind = np.eye(4)
    behind[2, 3] = -5
    field.begin(behind, image)
    assert not field.map.queries.any()


def test_a_query_begins_as_the_mean_over_the_views() -> None:
    field, (image, *_) = make_field(), two_materials()
    pose = np.eye(4)
    field.begin(pose, image)
    first = field.map.queries.clone()
    field.begin(pose, image.flip(2))
    second = 2 * field.map.queries - first  # of the second view alone
    torch.testing.assert_close(field.map.queries, (first + second) / 2)
    assert (first - second).abs().max() > 1


def test_what_is_hidden_begins_with_nothing() -> None:
    field, (image, *_) = make_field(), two_materials()
    hidden = wall()[:, 500:505].clone()
    hidden[2] = 4.0  # behind the wall
    hidden[:2] *= 2
    assert field.map.insert(hidden) == 5
    field.begin(np.eye(4), image)
    queries = field.map.live_queries
    assert queries[:, :-5].any(0).float().mean() > 0.7  # the rest is out of the image
    assert not queries[:, -5:].any()


def test_refuses_features_of_another_encoder() -> None:
    with pytest.raises(NativeError, match="features must be"):
        make_field().learn(np.eye(4), torch.zeros(5, 6, 8))


def test_the_gradient_is_that_of_the_twin() -> None:
    """Rasteriser, attention and loss in float64, differentiated by autograd."""
    field, (image, *_) = make_field(), two_materials()
    pose = np.eye(4)
    pose[:3, 3] = 0.3, -0.1, 0.4
    field.begin(np.eye(4), image)
    loss = field.gradient(pose, image)
    spheres, head = field.map, field.head
    queries = spheres.live_queries.double().requires_grad_()
    value = head.value.detach().double().requires_grad_()
    planes = rasterize_reference(
        torch.cat([spheres.live.double(), queries]), torch.from_numpy(pose), field.camera, 0.3
    )
    silhouette = planes[c.PLANE_SILHOUETTE].detach()
    covered = silhouette > 0.5
    blended = planes[c.PLANE_FEATURE :, covered].mT / silhouette[covered][:, None]
    scores = blended @ head.weight.detach().double() @ head.key.detach().double().mT
    decoded = scores.softmax(-1) @ value
    target = field.target(image).double().permute(1, 2, 0)[covered]
    exact = distillation_loss(decoded, target)
    exact.backward()
    assert loss == pytest.approx(float(exact.detach()), rel=1e-5)
    for ours, right in (
        (spheres.query_gradient[:, : spheres.count], queries.grad),
        (head.value.grad, value.grad),
    ):
        assert ours is not None and right is not None
        assert (ours - right).norm() / right.norm() < 1e-4
    assert not spheres.gradient.any()


def test_learning_leaves_the_spheres_alone() -> None:
    field, _ = learned()
    assert torch.equal(field.map.live, wall())


def test_a_view_of_nothing_teaches_nothing() -> None:
    field, (image, *_) = make_field(), two_materials()
    behind = np.eye(4)
    behind[2, 3] = -5
    assert field.learn(behind, image) == 0
    assert not field.map.queries.any()


def test_refuses_a_head_of_another_size() -> None:
    with pytest.raises(NativeError, match="the map has queries of 4 channels, the head takes 8"):
        FeatureField(GaussianMap(3, num_features=4), CAMERA, make_field().head)
