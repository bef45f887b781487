"""A plain vision transformer on the attention and the quantised layers of our own.

Oquab et al., "DINOv2" (2023), after Dosovitskiy et al., "An image is worth 16x16 words" (2021).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import conv2d, gelu, interpolate

from gsslam.attention import attention
from gsslam.errors import ConfigError
from gsslam.extras import require
from gsslam.features.teacher import prepare
from gsslam.quant import LinearW4A8, fold_into_linear, fold_into_norm, search_scales

# Names that files have and had for the same tensors.
_RENAMES = (
    (r"^(dinov2|model)\.", ""),
    (r"\.attention\.(?:attention\.query|q_proj)\.", ".attention.query."),
    (r"\.attention\.(?:attention\.key|k_proj)\.", ".attention.key."),
    (r"\.attention\.(?:attention\.value|v_proj)\.", ".attention.value."),
    (r"\.attention\.(?:output\.dense|o_proj)\.", ".attention.output."),
)
_EPSILON = 1e-6


class Block(nn.Module):
    """Attention and a two-layer perceptron, each after a layer norm, scaled and added."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], prefix: str, heads: int) -> None:
        """Take the tensors under ``prefix``."""
        super().__init__()
        get = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        self.heads = heads
        self.norm1, self.norm2 = (_norm(get, name) for name in ("norm1", "norm2"))
        self.query: nn.Module = _linear(get, "attention.query")
        self.key: nn.Module = _linear(get, "attention.key")
        self.value: nn.Module = _linear(get, "attention.value")
        self.output: nn.Module = _linear(get, "attention.output")
        self.fc1: nn.Module = _linear(get, "mlp.fc1")
        self.fc2: nn.Module = _linear(get, "mlp.fc2")
        self.scale1 = get.get("layer_scale1.lambda1", torch.ones(()))
        self.scale2 = get.get("layer_scale2.lambda1", torch.ones(()))

    def mix(self, normed: torch.Tensor) -> torch.Tensor:
        """Return the attention of tokens (N, C) to each other, before the output layer."""
        query, key, value = (
            layer(normed).view(1, -1, self.heads, normed.shape[1] // self.heads).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        return attention(query, key, value).transpose(1, 2).reshape(normed.shape)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the next tokens (N, C)."""
        tokens = tokens + self.scale1 * self.output(self.mix(self.norm1(tokens)))
        hidden: torch.Tensor = self.fc2(gelu(self.fc1(self.norm2(tokens))))
        return tokens + self.scale2 * hidden

    def quantize(self, images: list[torch.Tensor]) -> list[torch.Tensor]:
        """Quantise the linear layers for the tokens (N, C) of examples; return their next tokens.

        Scales of the first layers go into the layer norms and those of the output layer into the
        values, so that they cost nothing; between the perceptron's layers lies a nonlinearity.
        """
        heads = ("query", "key", "value")
        normed = [self.norm1(tokens) for tokens in images]
        mixed = torch.cat([self.mix(tokens) for tokens in normed])
        scales = search_scales([_weight(getattr(self, name)) for name in heads], torch.cat(normed))
        output_scales = search_scales([_weight(self.output)], mixed).scales
        fold_into_norm(self.norm1, scales.scales)
        fold_into_linear(_as_linear(self.value), output_scales)
        for name in heads:
            setattr(self, name, _quantized(getattr(self, name), scales.scales))
        self.output = _quantized(self.output, output_scales)
        middle = [x + self.scale1 * self.output(self.mix(self.norm1(x))) for x in images]
        normed = [self.norm2(tokens) for tokens in middle]
        hidden = gelu(self.fc1(torch.cat(normed)))
        scales = search_scales([_weight(self.fc1)], torch.cat(normed))
        hidden_scales = search_scales([_weight(self.fc2)], hidden).scales
        fold_into_norm(self.norm2, scales.scales)
        self.fc1 = _quantized(self.fc1, scales.scales)
        self.fc2 = _quantized(self.fc2, hidden_scales, folded=False)
        return [x + self.scale2 * self.fc2(gelu(self.fc1(self.norm2(x)))) for x in middle]


class VisionTransformer(nn.Module):
    """A DINOv2 encoder: features (C, H/patch, W/patch) of images of any size."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], heads: int | None = None) -> None:
        """Take tensors by the names that DINOv2's files have; heads of 64 channels where None.

        Raises ConfigError for tensors that do not make such an encoder.
        """
        super().__init__()
        tensors = {_renamed(name): tensor.float() for name, tensor in tensors.items()}
        try:
            self.patch_weight = tensors["embeddings.patch_embeddings.projection.weight"]
            self.patch_bias = tensors["embeddings.patch_embeddings.projection.bias"]
            self.class_token = tensors["embeddings.cls_token"][0]
            self.positions = tensors["embeddings.position_embeddings"][0]
            channels = self.patch_weight.shape[0]
            heads = heads or max(channels // 64, 1)
            count = 0
            while f"encoder.layer.{count}.norm1.weight" in tensors:
                count += 1
            self.blocks = nn.ModuleList(
                Block(tensors, f"encoder.layer.{i}.", heads) for i in range(count)
            )
            self.norm = _norm(tensors, "layernorm")
        except KeyError as error:
            raise ConfigError(
                f"no encoder of DINOv2's kind: the tensor {error} is missing"
            ) from error
        if not count or channels % heads:
            raise ConfigError(f"no encoder of DINOv2's kind: {count} blocks, {heads} heads")
        self.requires_grad_(False)
        self.eval()

    @staticmethod
    def load(path: Path, heads: int | None = None) -> VisionTransformer:
        """Read a ``.safetensors`` file; raises ConfigError where it cannot be used."""
        safetensors = require("safetensors", "features", "reading an encoder")
        try:
            with safetensors.safe_open(path, "pt") as file:
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except (OSError, safetensors.SafetensorError) as error:
            raise ConfigError(f"cannot read an encoder from {path}: {error}") from error
        return VisionTransformer(tensors, heads)

    @property
    def stride(self) -> int:
        """Pixels between two features, which is the side of a patch."""
        return self.patch_weight.shape[-1]

    def encode(self, rgb: torch.Tensor) -> torch.Tensor:
        """Return features (C, h, w) of an image (3, H, W), 0 to 1."""
        with torch.no_grad():
            tokens, (height, width) = self._embed(prepare(rgb, self.stride))
            return self.tokens(tokens)[1:].mT.reshape(-1, height, width)

    def tokens(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the normed last tokens of embedded ones (1 + h·w, C)."""
        for block in self.blocks:
            tokens = block(tokens)
        normed: torch.Tensor = self.norm(tokens)
        return normed

    def quantize(self, examples: Sequence[torch.Tensor]) -> None:
        """Make all linear layers W4A8, calibrated on images (3, H, W), block after block."""
        with torch.no_grad():
            images = [self._embed(prepare(rgb, self.stride))[0] for rgb in examples]
            for block in self.blocks:
                images = block.quantize(images)  # type: ignore[operator]

    def _embed(self, image: torch.Tensor) -> tuple[torch.Tensor, tuple[int, int]]:
        patches = conv2d(image, self.patch_weight, self.patch_bias, stride=self.stride)[0]
        height, width = patches.shape[1:]
        tokens = torch.cat([self.class_token, patches.flatten(1).mT])
        return tokens + self._positions_of(height, width), (height, width)

    def _positions_of(self, height: int, width: int) -> torch.Tensor:
        """Return the learned positions (1 + h·w, C), resampled to another grid."""
        side = round((len(self.positions) - 1) ** 0.5)
        if (side, side) == (height, width):
            return self.positions
        grid = self.positions[1:].mT.reshape(1, -1, side, side)
        grid = interpolate(grid, (height, width), mode="bicubic", align_corners=False)
        return torch.cat([self.positions[:1], grid[0].flatten(1).mT])


def _renamed(name: str) -> str:
    for pattern, replacement in _RENAMES:
        name = re.sub(pattern, replacement, name)
    return name


def _norm(tensors: Mapping[str, torch.Tensor], name: str) -> nn.LayerNorm:
    norm = nn.LayerNorm(len(tensors[f"{name}.weight"]), _EPSILON)
    norm.weight = nn.Parameter(tensors[f"{name}.weight"].clone())
    norm.bias = nn.Parameter(tensors[f"{name}.bias"].clone())
    return norm


def _linear(tensors: Mapping[str, torch.Tensor], name: str) -> nn.Linear:
    weight, bias = tensors[f"{name}.weight"], tensors.get(f"{name}.bias")
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    linear.weight = nn.Parameter(weight.clone())
    if bias is not None:
        linear.bias = nn.Parameter(bias.clone())
    return linear


def _as_linear(layer: nn.Module) -> nn.Linear:
    if not isinstance(layer, nn.Linear):
        raise ConfigError("the encoder is quantised already")
    return layer


def _weight(layer: nn.Module) -> torch.Tensor:
    return _as_linear(layer).weight


def _quantized(layer: nn.Module, scales: torch.Tensor, *, folded: bool = True) -> LinearW4A8:
    return LinearW4A8.from_linear(_as_linear(layer), scales, folded=folded)
