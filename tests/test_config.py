"""The configuration: defaults, ranges, errors that name the value."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, is_dataclass
from typing import Any

import pytest

from gsslam.config import MappingConfig, SlamConfig, TrackingConfig
from gsslam.errors import ConfigError


def test_every_value_has_a_default_and_cannot_be_changed() -> None:
    config = SlamConfig()
    for section in fields(config):
        value = getattr(config, section.name)
        assert is_dataclass(value) or section.name == "seed"
    with pytest.raises(FrozenInstanceError):
        config.seed = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        (TrackingConfig, {"levels": 0}, r"tracking\.levels = 0"),
        (TrackingConfig, {"levels": 6}, r"tracking\.levels = 6"),
        (TrackingConfig, {"huber_colour": 0}, r"tracking\.huber_colour = 0"),
        (TrackingConfig, {"silhouette_threshold": 1.5}, "silhouette_threshold = 1.5"),
        (TrackingConfig, {"depth_weight": float("inf")}, "depth_weight = inf"),
        (MappingConfig, {"iterations": 2.5}, r"mapping\.iterations = 2\.5"),
        (MappingConfig, {"no_such": 1}, r"there is no configuration value mapping\.no_such"),
        (SlamConfig, {"seed": -1}, "seed = -1"),
    ],
)
def test_what_is_out_of_range_is_named(section: Any, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        section(**values)
