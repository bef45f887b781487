"""The dictionary: its centres, its decoding, what distillation makes of it."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cosine_similarity, normalize

from gsslam.attention import attention_reference
from gsslam.errors import NativeError
from gsslam.features import FeatureHead, StreamingKMeans, distillation_loss
from gsslam.features.quantized_head import QuantizedHead


def blobs(count: int, channels: int, each: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Unit directions and vectors around them."""
    generator = torch.Generator().manual_seed(seed)
    centres = normalize(torch.randn(count, channels, generator=generator), dim=1)
    noise = torch.randn(each, count, channels, generator=generator)
    return centres, (centres + 0.05 * noise).flatten(0, 1)


def test_finds_the_centres_of_a_stream() -> None:
    centres, vectors = blobs(20, 16, 60)
    kmeans = StreamingKMeans(80, 16, patience=2)
    order = torch.randperm(len(vectors), generator=torch.Generator().manual_seed(1))
    for batch in vectors[order].split(100):
        kmeans.update(batch)
    assert kmeans.ready
    nearest = (normalize(kmeans.centres, dim=1) @ centres.mT).max(0).values
    assert nearest.min() > 0.98


def test_the_same_stream_gives_the_same_centres() -> None:
    _, vectors = blobs(10, 8, 30)
    results = []
    for _ in range(2):
        kmeans = StreamingKMeans(30, 8, seed=3)
        for batch in vectors.split(70):
            kmeans.update(batch)
        results.append(kmeans.centres.numpy().tobytes())
    assert results[0] == results[1]


def test_a_centre_is_the_mean_of_its_vectors() -> None:
    kmeans = StreamingKMeans(1, 3)
    vectors = torch.tensor([[1.0, 0, 0], [0.8, 0.2, 0], [1.2, 0.1, 0.3]])
    for vector in vectors:
        kmeans.update(vector[None])
    torch.testing.assert_close(kmeans.centres[0], vectors.mean(0))


def test_kmeans_leaves_out_what_has_no_direction() -> None:
    kmeans = StreamingKMeans(2, 3)
    kmeans.update(torch.tensor([[torch.nan, 0, 0], [0, 0, 0], [1, 0, 0]]))
    assert not kmeans.ready
    kmeans.update(torch.eye(3))
    assert kmeans.ready
    assert kmeans.centres.isfinite().all()
    with pytest.raises(NativeError, match="vectors must be"):
        kmeans.update(torch.zeros(2, 4))


def make_head() -> tuple[FeatureHead, torch.Tensor]:
    _, vectors = blobs(64, 40, 8, seed=5)
    return FeatureHead(vectors[:200], dim=16), vectors


def test_decodes_as_the_twin_of_attention() -> None:
    head, _ = make_head()
    queries = torch.randn(7, 9, 16)
    flat = (queries @ head.weight).reshape(1, 1, -1, 16).double()
    keys, values = head.key.double()[None, None], head.value.double()[None, None]
    exact, _ = attention_reference(flat, keys, values, scale=1.0)
    torch.testing.assert_close(head(queries).double(), exact.view(7, 9, 40), rtol=1e-5, atol=1e-5)
    planes = head.decode_planes(queries.permute(2, 0, 1))
    assert torch.equal(planes, head(queries).permute(2, 0, 1))


def test_encoding_begins_near_the_feature() -> None:
    head, vectors = make_head()
    decoded = head(head.encode(vectors))
    assert cosine_similarity(decoded, vectors, dim=1).mean() > 0.8


def test_distillation_teaches_dictionary_and_queries() -> None:
    head, vectors = make_head()
    target = vectors[300:400]
    queries = head.encode(target).detach().requires_grad_()
    optimizer = torch.optim.Adam([*head.parameters(), queries], lr=1e-2)
    losses = []
    for _ in range(60):
        loss = distillation_loss(head(queries), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]
    assert cosine_similarity(head(queries), target, dim=1).mean() > 0.95


def test_a_weight_of_zero_leaves_a_feature_out() -> None:
    decoded, target = torch.randn(5, 8), torch.randn(5, 8)
    weight = torch.tensor([1.0, 0, 1, 0, 0])
    part = distillation_loss(decoded[[0, 2]], target[[0, 2]])
    torch.testing.assert_close(distillation_loss(decoded, target, weight), part)
    assert distillation_loss(decoded, target, torch.zeros(5)) == 0


def test_refuses_more_directions_than_atoms_have() -> None:
    with pytest.raises(NativeError, match="need more than"):
        FeatureHead(torch.randn(8, 40), dim=16)


def test_a_head_of_four_bits_decodes_nearly_the_same() -> None:
    head, vectors = make_head()
    queries = head.encode(vectors).detach()
    quantized = QuantizedHead(head, queries[::3])
    decoded = quantized(queries.view(8, 64, 16))
    assert decoded.shape == (8, 64, 40)
    exact = head(queries).detach()
    assert cosine_similarity(decoded.view(-1, 40), exact, dim=1).mean() > 0.98
    loss = [cosine_similarity(x, vectors, dim=1).mean() for x in (exact, decoded.view(-1, 40))]
    assert loss[1] > loss[0] - 0.01


def test_atoms_come_later_and_count_from_then_on() -> None:
    _, vectors = blobs(64, 40, 8, seed=5)
    head = FeatureHead(vectors[:60], dim=16, capacity=100)
    queries = torch.randn(20, 16)
    before = head(queries)
    assert torch.equal(before, FeatureHead(vectors[:60], dim=16)(queries))
    head.grow(vectors[60:100])
    assert int(head.count) == 100
    keys = head.key[None, None].double()
    exact, _ = attention_reference(
        queries[None, None].double(), keys, head.value[None, None].double(), scale=1.0
    )
    torch.testing.assert_close(head(queries).double(), exact[0, 0], rtol=1e-5, atol=1e-5)
    with pytest.raises(NativeError, match="room for 0 atoms"):
        head.grow(vectors[:1])
    again = FeatureHead.of_state(head.state_dict())
    assert torch.equal(again(queries), head(queries))


def test_a_batch_makes_only_so_many_centres() -> None:
    _, vectors = blobs(10, 8, 30)
    kmeans = StreamingKMeans(30, 8, most_new=7)
    made = []
    for batch in vectors.split(60):
        kmeans.update(batch)
        made.append(len(kmeans.made))
    assert made == [7, 14, 21, 28, 30]
    again = StreamingKMeans(30, 8, most_new=7, seed=9)
    again.restore(kmeans.state())
    for other in (kmeans, again):
        other.update(vectors[::3])
    assert torch.equal(kmeans.centres, again.centres)
