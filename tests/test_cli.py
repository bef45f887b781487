"""The command line: what a user types, and what comes back."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest

import gsslam
from gsslam.cli import main
from gsslam.cli.run import run_defaults
from gsslam.presets import load_preset
from gsslam.run_folder import RunFolder
from tests.oracle_slam import OracleSlam

SMALL = ["--max-frames", "9", "--resolution", "48x36"]


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, and an empty cache of datasets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if importlib.util.find_spec("gsslam.slam") is None:
        use_slam(monkeypatch, OracleSlam)
    return tmp_path


def use_slam(monkeypatch: pytest.MonkeyPatch, slam: type) -> None:
    module = types.ModuleType("gsslam.slam")
    module.Slam = slam
    monkeypatch.setitem(sys.modules, "gsslam.slam", module)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"gsslam {gsslam.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_shows_examples(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 0
    out = capsys.readouterr().out
    for text in ("gsslam run --dataset tum/fr1_xyz", "gsslam datasets list", "run", "eval"):
        assert text in out
    assert "map.ply" not in out  # the details are in the help of the command


def test_help_of_run_shows_every_value_with_its_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run", "--preset", "fast", "--help"])
    assert caught.value.code == 0
    out = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--tracking.iterations INT Most Gauss-Newton iterations" in out
    iterations = load_preset("fast").tracking.iterations
    assert f"at full resolution. (default: {iterations})" in out
    assert "{None}" not in out


def test_run_and_eval(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["run", *SMALL, "--preset", "fast", "--tracking.iterations", "8", "--seed", "3"]) == 0
    )
    shown = capsys.readouterr()
    assert "ATE RMSE, all frames" in shown.out
    assert "Results in runs/synthetic/room/" in shown.out
    assert "tracking 9/9" in shown.err
    assert "evaluating 9/9" in shown.err
    latest = Path("runs/synthetic/room/latest")
    config, about = RunFolder(latest).read_config()
    fast = load_preset("fast")
    assert config.tracking.iterations == 8
    assert config.mapping == fast.mapping
    assert config.seed == about["seed"] == 3
    metrics = json.loads((latest / "metrics.json").read_text())
    assert metrics["frames"] == 9
    assert main(["eval", str(latest)]) == 0
    assert "ATE RMSE, all frames" in capsys.readouterr().out
    again = json.loads((latest / "metrics.json").read_text())
    assert again["psnr_db"] == pytest.approx(metrics["psnr_db"], abs=0.01)


def test_a_chosen_folder_and_the_config_of_an_earlier_run() -> None:
    assert main(["run", *SMALL, "--out", "mine", "--keyframes.max-interval", "3"]) == 0
    assert not Path("runs").exists()
    assert main(["run", *SMALL, "--out", "mine2", "--preset", "mine/config.yaml"]) == 0
    configs = [RunFolder(Path(name)).read_config()[0] for name in ("mine", "mine2")]
    assert configs[0] == configs[1]
    assert configs[0].keyframes.max_interval == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run --dataset nowhere/none", "unknown dataset 'nowhere/none'"),
        ("run --dataset tum/fr1_desk", "tum/fr1_desk is not on this computer"),
        ("run --dataset tum/fr1_desk --path none", "the folder none does not exist"),
        ("run --dataset folder", "pass its folder with --path"),
        ("run --tracking.iterations 0", "tracking.iterations = 0 should be greater"),
        ("run --keyframes.heldout-every -1", "keyframes.heldout_every = -1 should be greater"),
        ("run --preset fats", "no preset 'fats'"),
        ("run --preset=none.yaml", "cannot read preset none.yaml"),
        ("run --resolution 320", "resolution '320' must be width x height"),
        ("run --resolution 0x240", "resolution '0x240' must be width x height"),
        ("run --stride 0", "stride 0 must be at least 1"),
        ("run --max-frames 0", "max_frames 0 must be at least 1"),
        ("run --memory-budget huge", "memory budget 'huge' must be a size such as 512MB"),
        ("run --memory-budget 9MB", "9 MB is too small for frames of 320x240: give at least"),
        ("run --out full", "output folder full is not empty"),
        ("run --out full/file/run", "cannot write to full/file/run: Not a directory"),
        ("eval full", "full is not the folder of a run"),
        ("datasets show none", "unknown dataset 'none'"),
        ("datasets download synthetic/room", "needs no download"),
    ],
)
def test_known_errors_are_one_line_and_status_2(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("full").mkdir()
    Path("full/file").write_text("mine")
    assert main(arguments.split()) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("gsslam: ")
    assert shown.err.count("\n") == 1
    assert message in shown.err
    assert sorted(p.name for p in Path().iterdir()) == ["full"]


def test_a_gpu_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    from gsslam.device import resolve_device

    if resolve_device("auto") == "cuda":
        pytest.skip("this machine has a usable GPU")
    assert main(["run", "--device", "cuda"]) == 2
    assert "use --device cpu or auto" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", ["run --nonsense 1", "run --stride a", "nonsense", "datasets nonsense", "eval"]
)
def test_arguments_that_cannot_be_parsed_give_status_2(arguments: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments.split())
    assert caught.value.code == 2


def test_ctrl_c_gives_status_130_and_a_usable_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(OracleSlam):
        def track(self, frame):
            if frame.index == 4:
                os.kill(os.getpid(), signal.SIGINT)
            return super().track(frame)

    use_slam(monkeypatch, Interrupted)
    assert main(["run", *SMALL]) == 130
    assert "Interrupted" in capsys.readouterr().out
    metrics = json.loads(Path("runs/synthetic/room/latest/metrics.json").read_text())
    assert (metrics["frames"], metrics["interrupted"]) == (5, True)
    use_slam(monkeypatch, OracleSlam)
    assert main(["eval", "runs/synthetic/room/latest"]) == 0


def test_unknown_errors_come_through(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(OracleSlam):
        def track(self, frame):
            raise ZeroDivisionError

    use_slam(monkeypatch, Broken)
    with pytest.raises(ZeroDivisionError):
        main(["run", *SMALL])


def test_datasets_are_listed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets"]) == 0
    listed = capsys.readouterr().out
    assert main(["datasets", "list"]) == 0
    assert capsys.readouterr().out == listed
    for name in ("synthetic/room", "tum/fr1_xyz", "7scenes/redkitchen"):
        assert name in listed
    assert main(["datasets", "show", "tum/fr1_xyz"]) == 0
    shown = capsys.readouterr().out
    assert "rgbd_dataset_freiburg1_xyz.tgz" in shown
    assert "CC BY 4.0" in shown


def test_as_a_module_with_a_reader_that_leaves_early(workplace: Path) -> None:
    root = Path(gsslam.__file__).parents[1]
    done = subprocess.run(
        f"{sys.executable} -m gsslam datasets list | head -n 1; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("name")


def test_the_preset_is_found_however_it_is_written() -> None:
    for arguments in (["run", "--preset", "quality"], ["run", "--preset=quality"]):
        assert run_defaults(arguments).config == load_preset("quality")
    assert run_defaults(["run"]).config == load_preset("synthetic")  # the default dataset's
    for arguments in (["run", "--dataset", "tum/fr1_xyz"], ["run", "--dataset=tum/fr1_xyz"]):
        assert run_defaults(arguments).config == load_preset("default")


def test_resume_takes_everything_from_the_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--resume", "nowhere"]) == 2
    assert "nowhere is not the folder of a run" in capsys.readouterr().err
    assert main(["run", "--resume", "nowhere", "--max-frames", "3", "--threads", "1"]) == 2
    assert "leave out --max-frames, --threads" in capsys.readouterr().err


def test_an_interrupted_run_is_resumed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Impatient(OracleSlam):
        def track(self, frame: gsslam.Frame) -> gsslam.TrackingResult:
            if frame.index == 4:
                os.kill(os.getpid(), signal.SIGINT)
            return super().track(frame)

    with monkeypatch.context() as patch:
        use_slam(patch, Impatient)
        assert main(["run", *SMALL, "--trace"]) == 130
    use_slam(monkeypatch, OracleSlam)
    latest = Path("runs/synthetic/room/latest")
    assert (latest / "trace.json").exists()
    assert main(["run", "--resume", str(latest)]) == 0
    assert json.loads((latest / "metrics.json").read_text())["frames"] == 9
    assert main(["run", "--resume", str(latest)]) == 2
    assert "nothing to resume" in capsys.readouterr().err


def test_a_run_may_be_evaluated_later(monkeypatch: pytest.MonkeyPatch) -> None:
    use_slam(monkeypatch, OracleSlam)
    assert main(["run", *SMALL, "--no-evaluate", "--out", "later"]) == 0
    metrics = Path("later/metrics.json")
    values = json.loads(metrics.read_text())
    assert values["spheres"] > 0
    assert "psnr_db" not in values
    assert main(["eval", "later"]) == 0
    assert json.loads(metrics.read_text())["psnr_db"] > 20


def test_a_negative_number_of_frames_between_checkpoints_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "--checkpoint-every", "-1"]) == 2
    assert "--checkpoint-every -1 must be 0 or more" in capsys.readouterr().err
