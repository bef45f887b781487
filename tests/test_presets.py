"""Presets, and configuration to YAML and back."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsslam.config import KeyframeConfig, SlamConfig, TrackingConfig
from gsslam.errors import ConfigError
from gsslam.presets import config_hash, config_to_yaml, load_preset, preset_for, preset_names
from gsslam.run_folder import RunFolder


def test_the_shipped_presets_are_valid_and_the_default_changes_nothing() -> None:
    assert {"default", "fast", "quality", "cpu"} <= set(preset_names())
    configs = [load_preset(name) for name in preset_names()]
    assert load_preset("default") == SlamConfig()
    assert len(configs) == len({config_hash(config) for config in configs})


def test_a_dataset_family_may_have_a_preset_of_its_own() -> None:
    assert preset_for("synthetic/room") == "synthetic"
    assert preset_for("tum/fr1_desk") == preset_for("/data/my/scan") == "default"


@given(st.floats(1e-6, 1e3), st.integers(1, 50), st.integers(0, 2**40))
def test_yaml_holds_every_value_exactly(huber: float, interval: int, seed: int) -> None:
    config = SlamConfig(
        tracking=TrackingConfig(huber_colour=huber),
        keyframes=KeyframeConfig(max_interval=interval),
        seed=seed,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mine.yaml"
        path.write_text(config_to_yaml(config))
        assert load_preset(str(path)) == config


def test_a_runs_config_serves_as_preset(tmp_path: Path) -> None:
    config = SlamConfig(tracking=TrackingConfig(iterations=11), seed=5)
    RunFolder(tmp_path).write_config(config, {"dataset": "synthetic/room"})
    assert load_preset(str(tmp_path / "config.yaml")) == config
    assert RunFolder(tmp_path).read_config() == (config, {"dataset": "synthetic/room"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "tracking: {iterations: 0}",
            r"tracking\.iterations = 0 should be greater than or equal",
        ),
        ("tracking: {iteration: 3}", r"there is no configuration value tracking\.iteration"),
        ("mappping: {}", "there is no configuration value mappping"),
        ("seed: high", "seed = 'high' should be a valid integer"),
        ("tracking: 3", "tracking = 3 should be"),
        ("tracking: {huber_colour: .nan}", r"tracking\.huber_colour = nan should be"),
        ("- 1", "must hold named values"),
        ("a: [", "is not valid YAML"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_preset(str(file))
    assert "mine.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_presets_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no preset 'fats': choose one of 7scenes, cpu, default"):
        load_preset("fats")
    with pytest.raises(ConfigError, match=r"cannot read preset .*none\.yaml: No such file"):
        load_preset(str(tmp_path / "none.yaml"))


def test_wrong_values_in_python_are_config_errors_too() -> None:
    with pytest.raises(ConfigError, match=r"keyframes\.max_interval = 0 should be"):
        SlamConfig(keyframes=KeyframeConfig(max_interval=0))


def test_the_hash_sees_every_value() -> None:
    assert config_hash(SlamConfig()) == config_hash(SlamConfig())
    assert config_hash(SlamConfig(seed=1)) != config_hash(SlamConfig())
