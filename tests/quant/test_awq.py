"""Activation-aware scales: what they win, that folding changes nothing, files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from gsslam.errors import ConfigError, NativeError
from gsslam.quant import (
    LinearW4A8,
    fold_into_linear,
    fold_into_norm,
    load_layers,
    save_layers,
    search_scales,
)


def examples(
    rows: int, inputs: int, outliers: int, seed: int = 0, times: float = 30.0
) -> torch.Tensor:
    """Activations of which a few channels are stronger than the others."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, inputs, generator=generator)
    x[:, torch.randperm(inputs, generator=torch.Generator().manual_seed(9))[:outliers]] *= times
    return x


def relative_error(layer: LinearW4A8, linear: nn.Linear, x: torch.Tensor) -> float:
    exact = linear(x).detach()
    return float((layer(x) - exact).square().sum() / exact.square().sum())


@pytest.mark.parametrize(
    ("outliers", "times", "factor"), [(4, 100.0, 2.0), (4, 30.0, 1.5), (0, 1.0, 1.0)]
)
def test_error_on_new_activations_against_plain_rounding(
    outliers: int, times: float, factor: float
) -> None:
    torch.manual_seed(1)
    linear = nn.Linear(384, 96)
    found = search_scales([linear.weight], examples(256, 384, outliers, 0, times))
    unseen = examples(128, 384, outliers, 1, times)
    ours = relative_error(LinearW4A8.from_linear(linear, found.scales), linear, unseen)
    plain = relative_error(LinearW4A8.from_linear(linear), linear, unseen)
    assert ours * factor <= plain * 1.02
    assert found.error * factor <= found.plain_error


def test_the_error_is_that_of_the_layer() -> None:
    torch.manual_seed(2)
    linear, x = nn.Linear(200, 64, bias=False), examples(100, 200, 3)
    found = search_scales([linear.weight], x)
    assert 0 < found.alpha <= 1
    layer = LinearW4A8.from_linear(linear, found.scales)
    assert relative_error(layer, linear, x) == pytest.approx(found.error, rel=1e-2)
    plain = LinearW4A8.from_linear(linear)
    assert relative_error(plain, linear, x) == pytest.approx(found.plain_error, rel=1e-2)


def test_layers_that_share_their_inputs_share_the_scales() -> None:
    torch.manual_seed(3)
    weights, x = [torch.randn(40, 128), torch.randn(60, 128)], examples(50, 128, 2)
    together = search_scales(weights, x)
    assert together.error == pytest.approx(search_scales([torch.cat(weights)], x).error)


def test_a_dead_channel_keeps_the_scales_finite() -> None:
    x = examples(50, 128, 2)
    x[:, 5] = 0
    found = search_scales([torch.randn(30, 128)], x)
    assert found.scales.isfinite().all()
    assert (found.scales > 0).all()


def test_folded_scales_change_nothing_but_the_rounding() -> None:
    torch.manual_seed(4)
    scales, x = torch.rand(64) + 0.5, torch.randn(7, 32)
    norm, before, after = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 16)
    scales_in = torch.rand(32) + 0.5
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2)
        exact = after(before(norm(x)))
        before.weight *= scales_in
        fold_into_norm(norm, scales_in)
        fold_into_linear(before, scales)
        after.weight *= scales
        torch.testing.assert_close(after(before(norm(x))), exact)


def test_refuses_activations_that_are_no_examples() -> None:
    with pytest.raises(NativeError, match="at least one"):
        search_scales([torch.zeros(2, 3)], torch.zeros(0, 3))
    with pytest.raises(NativeError, match="outputs, 4"):
        search_scales([torch.zeros(2, 3)], torch.zeros(5, 4))
    with pytest.raises(NativeError, match="without weights"):
        fold_into_norm(nn.LayerNorm(3, elementwise_affine=False), torch.ones(3))


def test_saved_layers_come_back_to_the_byte(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    torch.manual_seed(5)
    layers = {
        "block.0.qkv": LinearW4A8.from_linear(nn.Linear(100, 48)),
        "head": LinearW4A8.from_linear(nn.Linear(100, 3, bias=False), torch.rand(100) + 0.5),
    }
    path = tmp_path / "layers.safetensors"
    save_layers(path, layers)
    back = load_layers(path)
    x = torch.randn(5, 100)
    assert back.keys() == layers.keys()
    assert all(torch.equal(back[name](x), layers[name](x)) for name in layers)
    damaged = path.read_bytes()
    path.write_bytes(damaged[: len(damaged) // 2])
    with pytest.raises(ConfigError, match="cannot read"):
        load_layers(path)


def test_other_files_are_refused_in_a_line(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    safetensors.save_file({"x": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(ConfigError, match="holds no quantised layers"):
        load_layers(tmp_path / "other.safetensors")
    with pytest.raises(ConfigError, match="cannot read"):
        load_layers(tmp_path / "none.safetensors")
    sizes = {"format": "gsslam-w4a8-1", "sizes": '{"a": [1, 2]}'}
    safetensors.save_file({"x": torch.zeros(2)}, tmp_path / "lacking.safetensors", sizes)
    with pytest.raises(ConfigError, match="damaged"):
        load_layers(tmp_path / "lacking.safetensors")
