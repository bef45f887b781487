"""What the viewer takes from a run, and what it leaves alone."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gsslam.cli import main
from gsslam.datasets import open_dataset
from gsslam.errors import ConfigError
from gsslam.gaussian_map import GaussianMap
from gsslam.run_folder import RunFolder
from gsslam.slam import Slam
from gsslam.trajectory import Trajectory
from gsslam.viewer import LiveViewer
from gsslam.viewer.layers import layers_of
from gsslam.viewer.pace import Pace
from gsslam.viewer.paths import LivePath, ate_cm, truth_in_world
from gsslam.viewer.scene import Scene
from gsslam.viewer.server import start_server, stop_server
from gsslam.viewer.spheres import MapCopy
from tests.small_room import CONFIG, Room
from tests.viewer.conftest import run_room


def same_results(a: RunFolder, b: RunFolder) -> bool:
    names = ("trajectory", "map", "compact_map")
    return all(getattr(a, name).read_bytes() == getattr(b, name).read_bytes() for name in names)


@pytest.mark.parametrize("publish_after", [0, 3])
def test_the_live_path_is_that_of_the_run(publish_after: int) -> None:
    room = Room(range(9))
    config = replace(CONFIG, mapping=replace(CONFIG.mapping, publish_after=publish_after))
    with Slam(config, room.camera) as slam:
        path = LivePath(slam.watch(lambda spheres: None))
        for index in range(len(room)):
            slam.track(room[index])
            if index % 2:
                assert len(path.poses()) == index + 1
        poses = slam.finish().T_world_camera
    assert np.allclose(path.poses(), poses, atol=1e-12)
    assert len(path.keyframes()) > 1


def test_the_truth_is_moved_into_the_world_of_the_map() -> None:
    dataset = open_dataset("synthetic/room", max_frames=20)
    truth = np.array([dataset[i].T_world_camera for i in range(20)])
    motion = np.eye(4)
    motion[:3, :3] = [[0, -1, 0], [1, 0, 0], [0, 0, 1]]
    motion[:3, 3] = (3, -2, 1)
    for count in (1, 5, 20):
        moved = truth_in_world(motion @ truth[:count], truth[:count])
        assert np.allclose(moved, motion @ truth[:count], atol=1e-9)
        assert ate_cm(motion @ truth[:count], moved) < 1e-6


def test_a_copy_of_the_map_has_what_its_spheres_have_learned() -> None:
    gaussian_map = GaussianMap(5, num_features=3)
    gaussian_map.reset(torch.randn(8, 4), torch.randn(3, 4))
    spheres = MapCopy.of_map(gaussian_map).spheres()
    assert np.array_equal(spheres.features, gaussian_map.live_queries.T.numpy())
    assert "features" in layers_of(spheres, has_images=False)


def test_a_copy_of_the_map_is_that_of_the_map() -> None:
    room = Room(range(5))
    copies: list[tuple[int, MapCopy]] = []
    with Slam(CONFIG, room.camera) as slam:
        slam.watch(lambda spheres: copies.append((spheres.count, MapCopy.of_map(spheres))))
        for index in range(len(room)):
            slam.track(room[index])
        slam.finish()
        state, view = slam.map.state(), slam.render(np.eye(4))
    count, copied = copies[-1]
    spheres = copied.spheres()
    assert count == len(state) == len(spheres.xyz)
    assert np.array_equal(spheres.xyz, state.xyz)
    assert np.array_equal(spheres.rgb, state.rgb)
    assert np.allclose(spheres.radius, np.exp(state.log_radius))
    assert np.allclose(spheres.opacity, 1 / (1 + np.exp(-state.opacity_logit)), atol=1e-6)
    assert spheres.error is not None and spheres.score is not None
    assert 0 < np.nanmedian(spheres.error) < 0.3
    low_pass = CONFIG.map.low_pass
    assert np.array_equal(spheres.view(room.camera, np.eye(4), low_pass).colour, view.colour)


def test_a_slow_viewer_is_not_waited_for(
    run_folder: RunFolder, viewer: LiveViewer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, drawn = threading.Event(), []

    def draw_slowly(scene: Scene, numbers: dict[str, str]) -> None:
        drawn.append(numbers)
        stuck.wait(60)

    monkeypatch.setattr(Scene, "show_numbers", draw_slowly)
    watched = run_room(tmp_path / "watched", viewer)
    assert len(drawn) == 1  # of ten frames
    stuck.set()
    assert same_results(watched, run_folder)


def test_a_viewer_that_fails_leaves_the_run_alone(
    run_folder: RunFolder,
    viewer: LiveViewer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(scene: Scene, numbers: dict[str, str]) -> None:
        raise OSError("no browser understands this")

    monkeypatch.setattr(Scene, "show_numbers", fail)
    watched = run_room(tmp_path / "watched", viewer)
    assert same_results(watched, run_folder)
    assert caplog.text.count("the viewer stopped; the run goes on") == 1


def test_a_map_that_cannot_be_copied_leaves_the_run_alone(
    run_folder: RunFolder,
    viewer: LiveViewer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(spheres: object) -> None:
        raise MemoryError

    monkeypatch.setattr(MapCopy, "of_map", fail)
    assert same_results(run_room(tmp_path / "watched", viewer), run_folder)
    assert caplog.text.count("the viewer shows no more maps") >= 1


def test_work_takes_its_share_of_a_processor() -> None:
    pace = Pace(0.1, 0.01, threading.get_ident())
    assert pace.remaining() <= 0
    with pace.work():
        began = time.thread_time()
        while time.thread_time() - began < 0.02:
            pass
    # 20 ms of work, counted twice: as the worker's and as the helper's.
    assert pace.remaining() > 0.2
    idle = Pace(0.1, 0.5, threading.get_ident())
    with idle.work():
        pass
    assert 0.3 < idle.remaining() <= 0.5


def test_ports_that_cannot_be_had() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"port {port} .*Address already in use.*another"):
            start_server(port=port)
    with pytest.raises(ConfigError, match="viewer port 70000 must be from 0 to 65535"):
        start_server(port=70000)
    with pytest.raises(ConfigError, match="viewer host 'no such host' is not known"):
        start_server("no such host", 0)
    with pytest.raises(ConfigError, match=r"cannot listen on port 0 of 203\.0\.113\.1"):
        start_server("203.0.113.1", 0)


def test_it_listens_on_loopback_only(capsys: pytest.CaptureFixture[str]) -> None:
    server = start_server(port=0)
    try:
        assert server.get_host() == "127.0.0.1"
    finally:
        stop_server(server)
    shown = capsys.readouterr()
    assert shown.out + shown.err == ""


def test_the_command_line_says_where_and_gives_the_same_bytes(
    run_folder: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        out = tmp_path / "none"
        assert main(f"run --out {out} --viewer --viewer-port {port}".split()) == 2
        shown = capsys.readouterr()
        assert f"port {port} of 127.0.0.1: Address already in use" in shown.err
        assert shown.err.count("\n") == 1
        assert not out.exists()
    small = f"run --preset {run_folder.config} --resolution 160x120 --max-frames 10"
    out = tmp_path / "run"
    assert main(f"{small} --out {out} --viewer --viewer-port 0".split()) == 0
    assert "The run is shown at http://localhost:" in capsys.readouterr().err
    assert same_results(RunFolder(out), run_folder)
    assert len(Trajectory.read(RunFolder(out).trajectory)) == 10
