"""Types of the native module; gsslam/native.py checks what goes in."""

from collections.abc import Sequence

constants: dict[str, float]

def thread_count() -> int: ...
def set_thread_count(count: int) -> None: ...
def isa() -> str: ...
def set_isa(name: str) -> bool: ...

PAGE_TOKENS: int

def linear_kernel(vnni: bool) -> str: ...

# The CUDA plans take the CPU ones' arguments, the constructors the device's index behind them and
# every call the stream; gsslam/native.py makes and calls them by name.
def cuda_problem(device: int = 0) -> str:
    """Return why the CUDA kernels cannot run on a device, empty where they can."""

class View:
    def __init__(
        self,
        width: int,
        height: int,
        intrinsics: Sequence[float],
        low_pass: float,
        T_camera_world: Sequence[float],
    ) -> None: ...

class CpuRasterizer:
    def __init__(self, num_features: int) -> None: ...
    def project(
        self, parameters: int, capacity: int, count: int, view: View, list_margin: float
    ) -> int: ...
    def refresh(self, view: View) -> bool: ...
    def forward(self, image: int) -> None: ...
    def backward(
        self,
        parameters: int,
        capacity: int,
        count: int,
        image: int,
        grad_image: int,
        error: int,
        grad_parameters: int,
        statistics: int,
        decay: float,
    ) -> list[float]: ...
    def bytes(self) -> int: ...

class TrackingWeights:
    def __init__(
        self,
        huber_colour: float,
        depth_weight: float,
        sigma_base: float,
        sigma_quadratic: float,
        silhouette_threshold: float,
    ) -> None: ...

class CpuTracking:
    def __init__(self) -> None: ...
    def normal_equations(
        self,
        plan: CpuRasterizer,
        rgb: int,
        depth: int,
        gain: float,
        bias: float,
        weights: TrackingWeights,
        stride: int,
        skew: int,
    ) -> list[float]: ...
    def residuals(
        self,
        plan: CpuRasterizer,
        rgb: int,
        depth: int,
        gain: float,
        bias: float,
        weights: TrackingWeights,
        stride: int,
        skew: int,
    ) -> list[float]: ...
    def bytes(self) -> int: ...

class CpuAdam:
    def __init__(self, beta1: float, beta2: float, epsilon: float) -> None: ...
    def step(
        self,
        parameters: int,
        gradient: int,
        first_moment: int,
        second_moment: int,
        steps: int,
        learning_rates: int,
        rows: int,
        capacity: int,
        count: int,
    ) -> tuple[int, int]: ...

class LossWeights:
    def __init__(
        self, ssim: float, depth: float, silhouette: float, silhouette_threshold: float
    ) -> None: ...

class LossValue:
    """Parts are not weighted; dssim is 0 if its weight is."""

    @property
    def total(self) -> float: ...
    @property
    def l1(self) -> float: ...
    @property
    def dssim(self) -> float: ...
    @property
    def depth(self) -> float: ...
    @property
    def silhouette(self) -> float: ...
    @property
    def grad_gain(self) -> float: ...
    @property
    def grad_bias(self) -> float: ...

class CpuImageLoss:
    def __init__(self) -> None: ...
    def evaluate(
        self,
        rendered: int,
        colour: int,
        depth: int,
        width: int,
        height: int,
        gain: float,
        bias: float,
        weights: LossWeights,
        gradient: int,
        error: int,
    ) -> LossValue: ...
    def bytes(self) -> int: ...

class CpuAttention:
    def __init__(self) -> None: ...

class CpuLinearW4A8:
    def __init__(self) -> None: ...
