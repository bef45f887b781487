from pathlib import Path

import pytest

from gsslam import resources
from gsslam.errors import ConfigError


def test_checkout_and_installation_are_both_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (resources.catalogue_folder() / "tum.yaml").is_file()
    package = tmp_path / "site-packages" / "gsslam"
    (package / "_catalogue").mkdir(parents=True)
    (package.parent / "configs").mkdir()
    monkeypatch.setattr(resources, "_PACKAGE", package)
    assert resources.catalogue_folder() == package / "_catalogue"
    assert resources.configs_folder() == package.parent / "configs"
    (package / "_catalogue").rmdir()
    with pytest.raises(ConfigError, match="_catalogue is missing"):
        resources.catalogue_folder()
