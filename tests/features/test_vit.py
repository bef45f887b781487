"""The vision transformer of our own against the transformers library, and quantised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cosine_similarity

from gsslam.errors import ConfigError
from gsslam.features import VisionTransformer, open_teacher
from gsslam.features.teacher import prepare


def random_tensors(
    channels: int = 128, layers: int = 2, patch: int = 14
) -> dict[str, torch.Tensor]:
    """Tensors by the names of DINOv2's files."""
    generator = torch.Generator().manual_seed(0)

    def make(*shape: int, size: float = 1.0) -> torch.Tensor:
        return size * torch.randn(shape, generator=generator)

    tensors = {
        "embeddings.cls_token": make(1, 1, channels),
        "embeddings.position_embeddings": make(1, 17, channels),
        "embeddings.patch_embeddings.projection.weight": make(channels, 3, patch, patch, size=0.05),
        "embeddings.patch_embeddings.projection.bias": make(channels),
        "layernorm.weight": 1 + make(channels, size=0.1),
        "layernorm.bias": make(channels),
    }
    for layer in range(layers):
        prefix = f"encoder.layer.{layer}."
        for norm in ("norm1", "norm2"):
            tensors[f"{prefix}{norm}.weight"] = 1 + make(channels, size=0.2)
            tensors[f"{prefix}{norm}.bias"] = make(channels, size=0.1)
        sizes = {
            f"attention.attention.{n}": (channels, channels) for n in ("query", "key", "value")
        }
        sizes |= {"attention.output.dense": (channels, channels)}
        sizes |= {"mlp.fc1": (4 * channels, channels), "mlp.fc2": (channels, 4 * channels)}
        for name, shape in sizes.items():
            tensors[f"{prefix}{name}.weight"] = make(*shape, size=shape[1] ** -0.5)
            tensors[f"{prefix}{name}.bias"] = make(shape[0], size=0.1)
        for scale in ("layer_scale1", "layer_scale2"):
            tensors[f"{prefix}{scale}.lambda1"] = make(channels).abs()
    return tensors


def library_model(tensors: dict[str, torch.Tensor]) -> Any:
    transformers = pytest.importorskip("transformers")
    config = transformers.Dinov2Config(
        hidden_size=128, num_hidden_layers=2, num_attention_heads=2, image_size=56, patch_size=14
    )
    model = transformers.Dinov2Model(config).eval()
    named = {}
    own = model.state_dict()
    for name, tensor in tensors.items():
        other = name.replace("attention.output.dense", "attention.o_proj")
        for part in ("query", "key", "value"):
            other = other.replace(f"attention.attention.{part}", f"attention.{part[0]}_proj")
        named[name if name in own else other] = tensor
    named["embeddings.mask_token"] = own["embeddings.mask_token"]
    model.load_state_dict(named)
    return model


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("size", [(56, 56), (70, 98)])
def test_agrees_with_the_transformers_library(size: tuple[int, int]) -> None:
    tensors = random_tensors()
    model, image = library_model(tensors), torch.rand(3, *size)
    with torch.no_grad():
        tokens = model(pixel_values=prepare(image, 14)).last_hidden_state[0, 1:]
    features = VisionTransformer(tensors).encode(image)
    expected = tokens.mT.view(128, size[0] // 14, size[1] // 14)
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=2e-4)
    assert torch.equal(VisionTransformer(model.state_dict()).encode(image), features)


def test_quantised_it_gives_nearly_the_same_features() -> None:
    tensors = random_tensors()
    for layer in (0, 1):  # a few channels that are much stronger, as trained encoders have them
        tensors[f"encoder.layer.{layer}.norm1.weight"][[3, 70]] *= 5
        tensors[f"encoder.layer.{layer}.norm2.weight"][[9, 50, 51]] *= 20
    generator = torch.Generator().manual_seed(1)
    images = [torch.rand(3, 56, 70, generator=generator) for _ in range(4)]
    encoder = VisionTransformer(tensors)
    exact = [encoder.encode(image) for image in images]
    encoder.quantize(images[:3])
    for image, features in zip(images, exact, strict=True):
        assert cosine_similarity(encoder.encode(image), features, dim=0).mean() > 0.99
    with pytest.raises(ConfigError, match="quantised already"):
        encoder.quantize(images[:1])


def test_reads_safetensors_and_refuses_other_tensors(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    tensors, image = random_tensors(), torch.rand(3, 42, 42)
    safetensors.save_file(tensors, tmp_path / "encoder.safetensors")
    encoder = open_teacher(str(tmp_path / "encoder.safetensors"))
    assert torch.equal(encoder.encode(image), VisionTransformer(tensors).encode(image))
    del tensors["encoder.layer.1.mlp.fc2.weight"]
    safetensors.save_file(tensors, tmp_path / "lacking.safetensors")
    with pytest.raises(ConfigError, match=r"mlp\.fc2\.weight"):
        VisionTransformer.load(tmp_path / "lacking.safetensors")
    with pytest.raises(ConfigError, match="cannot read"):
        VisionTransformer.load(tmp_path / "none.safetensors")
