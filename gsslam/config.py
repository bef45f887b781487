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

    # Gauss-Newton iterations at half resolution.
    coarse_iterations: Count = 5
    # Most Gauss-Newton iterations at full resolution.
    iterations: PositiveCount = 6
    # Stop when a step moves the camera by less than this (metres and radians).
    convergence_step: Positive = 1e-4
    # Colour residual (0 to 1) at which the Huber weight starts to fall.
    huber_colour: Positive = 0.05
    # Weight of the depth residual against colour; colour carries the tracking, depth steadies it.
    depth_weight: NonNegative = 0.05
    # Depth noise: a + b z^2, in metres and 1/metres.
    depth_sigma_base: Positive = 0.01
    depth_sigma_quadratic: NonNegative = 0.003
    # Pixels take part only where the map covers them by at least this share.
    silhouette_threshold: Share = 0.95
    # A frame is lost when less than this share of its pixels took part.
    min_valid_share: Share = 0.2
    # A frame is lost when its root-mean-square colour residual is above this.
    max_colour_residual: Positive = 0.2


@dataclass(frozen=True, config=_strict)
class KeyframeConfig(_Section):
    """Which frames become keyframes."""

    # A keyframe is due after this many frames.
    max_interval: PositiveCount = 4
    # Every n-th frame is kept out of the map, to score views that it never saw. 0 holds none out.
    heldout_every: Count = 8


@dataclass(frozen=True, config=_strict)
class MappingConfig(_Section):
    """Insertion of spheres and optimisation over a window of keyframes."""

    # Optimisation steps after each keyframe.
    iterations: PositiveCount = 30
    # Optimisation steps after the first keyframe.
    first_iterations: PositiveCount = 100
    # Newest keyframes in the window.
    window_size: PositiveCount = 4
    # Random older keyframes added to the window.
    window_random: Count = 4


@dataclass(frozen=True, config=_strict)
class SlamConfig(_Section):
    """Everything that decides a run, apart from its input."""

    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    keyframes: KeyframeConfig = field(default_factory=KeyframeConfig)
    mapping: MappingConfig = field(default_factory=MappingConfig)
    # Seed of every random choice.
    seed: Count = 0
