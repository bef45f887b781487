"""From frames to numbers: what counts, and what has no answer."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from gsslam.config import SlamConfig
from gsslam.datasets import open_dataset
from gsslam.errors import DatasetError
from gsslam.evaluation import Evaluation, FrameRecord, evaluate, quality_metrics, time_metrics
from gsslam.evaluation.records import Status
from gsslam.evaluation.trajectory import position_errors, root_mean_square
from gsslam.keyframes import is_heldout
from gsslam.trajectory import Trajectory
from tests.oracle_slam import OracleSlam

FRAMES = 10


class PartlyTrue:
    """The synthetic room with ground truth for some frames only."""

    def __init__(self, known: set[int]) -> None:
        self.room = open_dataset("synthetic/room", resolution=(32, 24), max_frames=FRAMES)
        self.known = known

    def __len__(self) -> int:
        return FRAMES

    def __getitem__(self, index: int) -> object:
        frame = self.room[index]
        return frame if index in self.known else replace(frame, T_world_camera=None)


def tracked(
    dataset: object, drift: float = 0.0
) -> tuple[list[FrameRecord], Trajectory, OracleSlam]:
    slam = OracleSlam(SlamConfig(), dataset.room.camera)
    slam.drift = drift
    records = [
        FrameRecord.of_result(slam.track(dataset[i]), heldout=is_heldout(i, 8), reading_ms=float(i))
        for i in range(FRAMES)
    ]
    return records, slam.finish(), slam


def values(evaluation: Evaluation) -> dict[str, float | None]:
    return {metric.name: metric.value for metric in quality_metrics(evaluation)}


def test_frames_without_truth_are_left_out_of_trajectory_errors_only() -> None:
    dataset = PartlyTrue(known=set(range(4, FRAMES)))
    records, trajectory, slam = tracked(dataset, drift=0.01)
    evaluation = evaluate(dataset, records, trajectory, slam.render)
    assert [record.position_error_cm is None for record in evaluation.records] == [True] * 4 + [
        False
    ] * 6
    truth = np.array([dataset[i].T_world_camera for i in range(4, FRAMES)])
    expected = 100 * root_mean_square(position_errors(trajectory.T_world_camera[4:], truth))
    numbers = values(evaluation)
    assert numbers["ate_rmse_cm"] == pytest.approx(expected, rel=1e-12)
    assert numbers["frames"] == FRAMES
    psnrs = [record.psnr_db for record in evaluation.records]
    assert None not in psnrs
    assert numbers["psnr_db"] == pytest.approx(np.mean(psnrs))
    assert numbers["psnr_heldout_db"] == psnrs[7]


def test_without_ground_truth_or_held_out_frames_there_is_no_number() -> None:
    dataset = PartlyTrue(known=set())
    records, trajectory, slam = tracked(dataset)
    records = [replace(record, heldout=False) for record in records]
    numbers = values(evaluate(dataset, records, trajectory, slam.render))
    absent = {name for name, value in numbers.items() if value is None}
    assert absent == {
        *("ate_rmse_cm", "rpe_translation_cm", "rpe_rotation_deg"),
        *("rpe_translation_1s_cm", "rpe_rotation_1s_deg"),
        *("psnr_heldout_db", "psnr_heldout_exposure_db", "ssim_heldout"),
    }


def test_an_interrupted_evaluation_scores_no_view_but_all_poses() -> None:
    dataset = PartlyTrue(known=set(range(FRAMES)))
    records, trajectory, slam = tracked(dataset, drift=0.01)
    asked = itertools.count()
    evaluation = evaluate(
        *(dataset, records, trajectory, slam.render), should_stop=lambda: next(asked) >= 3
    )
    assert not evaluation.complete
    numbers = values(evaluation)
    assert numbers["psnr_db"] is None
    assert numbers["ate_rmse_cm"] > 0
    assert all(record.psnr_db is None for record in evaluation.records)


def test_lost_and_skipped_frames_are_counted() -> None:
    dataset = PartlyTrue(known=set(range(FRAMES)))
    records, trajectory, slam = tracked(dataset)
    records[3] = replace(records[3], status="lost")
    records.append(FrameRecord.of_missing(FRAMES, "skipped", "truncated", heldout=False))
    evaluation = evaluate(dataset, records, trajectory, slam.render)
    numbers = values(evaluation)
    assert (numbers["frames"], numbers["lost_frames"], numbers["skipped_frames"]) == (FRAMES, 1, 1)
    assert evaluation.records[3].psnr_db is not None
    assert evaluation.records[-1] == records[-1]


def test_times_are_means_over_all_frames() -> None:
    records, _, _ = tracked(PartlyTrue(known=set()))
    numbers = {m.name: m.value for m in time_metrics(records, loop_seconds=2.0)}
    # Keyframes 0, 4, 8 cost the oracle 4 ms each.
    expected = {"frames_per_s": 5.0, "reading_ms": 4.5, "tracking_ms": 2.0, "mapping_ms": 1.2}
    expected["waiting_ms"] = 0.0
    assert numbers == pytest.approx(expected)


def test_poses_must_match_the_frames() -> None:
    dataset = PartlyTrue(known=set())
    records, trajectory, slam = tracked(dataset)
    with pytest.raises(DatasetError, match="damaged: 9 frames but 10 poses"):
        evaluate(dataset, records[1:], trajectory, slam.render)


def test_losses_are_counted_by_frames_and_by_occasions() -> None:
    def metrics(statuses: str) -> dict[str, float | None]:
        names: dict[str, Status] = {"t": "tracked", "l": "lost", "s": "skipped", "d": "dropped"}
        records = [
            FrameRecord(index=index, status=names[letter], heldout=False)
            for index, letter in enumerate(statuses)
        ]
        seen = sum(record.seen for record in records)
        nothing = Trajectory(np.zeros(0), np.zeros((0, 4, 4)))
        evaluation = Evaluation(tuple(records), (), nothing, nothing, complete=False)
        found = {metric.name: metric.value for metric in quality_metrics(evaluation)}
        assert found["frames"] == seen
        return found

    numbers = metrics("ttlslltdd")
    assert (numbers["lost_frames"], numbers["longest_loss_frames"]) == (3, 3)
    assert (numbers["recoveries"], numbers["skipped_frames"], numbers["dropped_frames"]) == (
        1,
        1,
        2,
    )
    numbers = metrics("tltll")
    assert (numbers["lost_frames"], numbers["longest_loss_frames"]) == (3, 2)
    assert numbers["recoveries"] == 1
