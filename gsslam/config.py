"""The configuration: typed, ranges checked, the comment above a field is its help text."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any, get_type_hints

from pydantic import (
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic.dataclasses import dataclass

from gsslam.errors import ConfigError

_strict = ConfigDict(extra="forbid", allow_inf_nan=False)

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
OpenShare = Annotated[float, Field(gt=0, lt=1)]
Count = Annotated[int, Field(ge=0)]
PositiveCount = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, config=_strict)
class _Section:
    """Turns what pydantic finds wrong into a ConfigError of one line."""

    @model_validator(mode="wrap")
    @classmethod
    def _explain(cls, value: Any, validate: ModelWrapValidatorHandler[_Section]) -> _Section:
        try:
            return validate(value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            keys = [_section_name(cls), *(str(key) for key in first["loc"])]
            name = ".".join(key for key in keys if key) or "configuration"
            if first["type"] == "unexpected_keyword_argument":
                raise ConfigError(f"there is no configuration value {name}") from error
            problem = first["msg"].removeprefix("Input ")
            raise ConfigError(f"{name} = {first['input']!r} {problem}") from error


def _section_name(section: type[_Section]) -> str:
    """Return the key of ``section`` in the configuration; empty for the configuration itself."""
    hints = get_type_hints(SlamConfig)
    return next((key for key, hint in hints.items() if hint is section), "")


@dataclass(frozen=True, config=_strict)
class TrackingConfig(_Section):
    """Camera pose of each frame by damped Gauss-Newton on the rendered map."""

    # Resolutions from coarse to fine, each half of the next.
    levels: Annotated[int, Field(ge=1, le=5)] = 3
    # Most Gauss-Newton iterations at each of the coarser resolutions.
    coarse_iterations: PositiveCount = 5
    # Most Gauss-Newton iterations at full resolution.
    iterations: PositiveCount = 6
    # Most pixels that take part at each resolution, in patches of 4 x 4 spread evenly; 0 takes all.
    # A GPU takes all of them anyway.
    max_pixels: Count = 0
    # Stop when a step moves the camera by less than this (metres and radians).
    convergence_step: Positive = 2e-4
    # Colour residual (0 to 1) at which the Huber weight starts to fall.
    huber_colour: Positive = 0.05
    # Weight of the depth residual against colour; colour carries the tracking, depth steadies it.
    depth_weight: NonNegative = 0.05
    # Depth noise a + b z^2: a in metres.
    depth_sigma_base: Positive = 0.01
    # Depth noise a + b z^2: b in 1/metres.
    depth_sigma_quadratic: NonNegative = 0.003
    # Pixels take part only where the map covers them by at least this share.
    silhouette_threshold: Share = 0.9
    # Pull of the exposure to gain 1 and bias 0, as a share of the pixels that take part.
    exposure_prior: NonNegative = 0.01
    # A frame is lost when less than this share of its pixels took part.
    min_valid_share: Share = 0.1
    # A frame is lost when it is brighter than the map by more than this factor, or darker.
    max_gain: Annotated[float, Field(gt=1)] = 2.5
    # A frame is lost when its root-mean-square colour residual is above this.
    max_colour_residual: Positive = 0.2
    # A frame is lost when that residual is this many times that of the last frames ...
    max_residual_rise: Annotated[float, Field(gt=1)] = 2.5
    # ... and above this.
    usual_residual: NonNegative = 0.1
    # A lost camera is looked for at so many keyframes that look like its image.
    recovery_keyframes: Count = 3


@dataclass(frozen=True, config=_strict)
class KeyframeConfig(_Section):
    """Which frames become keyframes."""

    # A keyframe is due after this many frames.
    max_interval: PositiveCount = 4
    # Frames between keyframes at least.
    min_interval: PositiveCount = 2
    # A keyframe is due after this translation, as a share of the median depth.
    translation: Positive = 0.08
    # A keyframe is due after this rotation, in degrees.
    rotation_deg: Positive = 6.0
    # A keyframe is due when the map covers less than this share of the image.
    min_overlap: Share = 0.7
    # Every n-th frame is kept out of the map, to score views that it never saw. 0 holds none out.
    heldout_every: Count = 8


@dataclass(frozen=True, config=_strict)
class DensifyConfig(_Section):
    """Insertion of spheres where the map does not explain a keyframe."""

    # Spheres are inserted where the map covers a pixel by less than this share ...
    silhouette_threshold: Share = 0.6
    # ... or lies further behind the measured depth than this share of it.
    behind_share: Positive = 0.05
    # One pixel in stride x stride gets a sphere.
    stride: PositiveCount = 2
    # Radius of a new sphere, in stride pixels.
    radius_scale: Positive = 0.8
    # Opacity of a new sphere.
    opacity: OpenShare = 0.9
    # Open pixels without a measurement take the depth of the nearest measured one.
    fill_unmeasured: bool = True
    # Measurements beyond this many metres make no spheres.
    max_depth: Positive = 20.0


@dataclass(frozen=True, config=_strict)
class MappingConfig(_Section):
    """Optimisation of spheres and poses over a window of keyframes."""

    # Optimisation steps after each keyframe.
    iterations: PositiveCount = 40
    # Optimisation steps after the first keyframe.
    first_iterations: PositiveCount = 100
    # Tracking sees the map with a keyframe this many frames after it, or with the next keyframe;
    # until then mapping works beside tracking. 0 lets tracking wait for mapping.
    publish_after: Count = 4
    # Newest keyframes in the window.
    window_size: PositiveCount = 2
    # Random older keyframes added to the window.
    window_random: Count = 6
    # Share of D-SSIM in the colour loss; the rest is L1.
    ssim_weight: Share = 0.2
    # Weight of the depth L1 (metres) against the colour loss.
    depth_weight: NonNegative = 0.2
    # Weight of the measured pixels' uncovered share.
    silhouette_weight: NonNegative = 0.0
    # Learning rate of the centres, metres.
    centre_rate: Positive = 5e-5
    # Learning rate of the logarithm of the radius.
    radius_rate: Positive = 5e-3
    # Learning rate of the opacity's logit.
    opacity_rate: Positive = 5e-2
    # Learning rate of the colours.
    colour_rate: Positive = 5e-3
    # Learning rate of the keyframes' poses, metres and radians; 0 keeps them.
    pose_rate: NonNegative = 3e-4
    # Learning rate of the keyframes' gain and bias.
    exposure_rate: NonNegative = 1e-3


@dataclass(frozen=True, config=_strict)
class PruningConfig(_Section):
    """Removal of spheres that do not earn their memory."""

    # Spheres less opaque than this are removed.
    min_opacity: Share = 0.05
    # Spheres with a larger radius, in metres, are removed.
    max_radius: Positive = 0.5
    # A sphere goes after this many judgements in a row under the threshold; 0 judges none.
    judgements: Count = 6
    # Least score, in robust standard deviations from an average sphere in view.
    threshold: float = -0.95
    # Spheres of which a pixel had this share of its blending weight, or more, stay.
    dispensable_share: Share = 0.12
    # Steps in view over which what was seen of a sphere fades.
    window: PositiveCount = 24
    # Weight of the largest share of a pixel's blending weight.
    contribution_weight: NonNegative = 1.0
    # Weight of the opacity.
    opacity_weight: NonNegative = 0.0
    # Weight of the colour error against a sphere. Negative, it speaks for the sphere: where the
    # image is still wrong there is detail, which needs every sphere that it has.
    error_weight: float = -0.25
    # Robust standard deviations from an average sphere's up to which an error counts.
    error_limit: Positive = 2.0


@dataclass(frozen=True, config=_strict)
class MapConfig(_Section):
    """Size of the map."""

    # Most spheres; those of the lowest scores go when a keyframe needs room.
    capacity: PositiveCount = 200_000
    # Memory for all that grows with images and map, CPU and GPU together, in 10^6 bytes: it limits
    # spheres and keyframes. 0 sets no limit.
    memory_budget_mb: NonNegative = 0.0
    # Pixels^2 added to every projected variance, so that no sphere falls between pixels.
    low_pass: NonNegative = 0.3


@dataclass(frozen=True, config=_strict)
class FeaturesConfig(_Section):
    """Learned features: a query on every sphere, decoded into the features of an image encoder."""

    # Learn them beside the map, which they never change; the flag --features says the same.
    enabled: bool = False
    # The encoder: efficientnet-lite0, or the path of an .onnx or .safetensors file.
    teacher: str = "efficientnet-lite0"
    # Images are enlarged by this factor before they are encoded, for finer features.
    teacher_scale: PositiveCount = 1
    # Channels of a query.
    dim: Annotated[int, Field(ge=1, le=64)] = 32
    # Most entries of the dictionary.
    atoms: PositiveCount = 2000
    # The dictionary is made after this many keyframes; no query is learned before.
    first_keyframes: PositiveCount = 8
    # It is full after so many, each of which adds an equal part.
    filling_keyframes: PositiveCount = 48
    # Optimisation steps after each keyframe.
    iterations: PositiveCount = 6
    # Steps on every keyframe when the run ends, smaller and smaller.
    final_rounds: Count = 3
    # One pixel in stride x stride takes part in them.
    stride: PositiveCount = 8
    # Learning rate of the queries.
    query_rate: Positive = 0.1
    # Learning rate of the head.
    head_rate: Positive = 1e-2


@dataclass(frozen=True, config=_strict)
class SlamConfig(_Section):
    """Everything that decides a run, apart from its input."""

    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    keyframes: KeyframeConfig = field(default_factory=KeyframeConfig)
    densify: DensifyConfig = field(default_factory=DensifyConfig)
    mapping: MappingConfig = field(default_factory=MappingConfig)
    pruning: PruningConfig = field(default_factory=PruningConfig)
    map: MapConfig = field(default_factory=MapConfig)
    features: FeaturesConfig = field(default_factory=FeaturesConfig)
    # Seed of every random choice.
    seed: Count = 0
