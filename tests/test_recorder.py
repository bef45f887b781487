from __future__ import annotations

import gc
import json
import threading
import weakref
from pathlib import Path

import pytest
import torch

from gsslam import native
from gsslam.errors import DatasetError, NativeError, OutputError
from gsslam.losses import ImageLoss, LossWeights
from gsslam.recorder import FlightRecorder, read_flight, recorder


@pytest.fixture
def flight(monkeypatch: pytest.MonkeyPatch) -> FlightRecorder:
    """A recorder of eight entries in place of the process's own."""
    flight = FlightRecorder(8)
    monkeypatch.setattr(native, "recorder", flight)
    return flight


def evaluate(height: int = 4, width: int = 6, device: str = "cpu", gain: float = 1.0) -> None:
    image = torch.zeros(5, height, width, device=device)
    colour, depth = image[:3].clone(), image[0].clone()
    out = {"gradient": image.clone(), "error": depth.clone()}
    ImageLoss(LossWeights(), device).evaluate(image, colour, depth, gain=gain, **out)


def test_an_operation_is_recorded_with_all_that_belongs_to_it(
    flight: FlightRecorder, tmp_path: Path, device: str
) -> None:
    flight.set_context(step=12, map_version=3)
    evaluate(device=device, gain=1.5)
    flight.write(tmp_path / "flight.jsonl")
    make, entry = read_flight(tmp_path / "flight.jsonl")
    assert (make["operation"], entry["operation"]) == ("ImageLoss.make", "ImageLoss.evaluate")
    assert entry["arguments"]["rendered"] == {"dtype": "float32", "shape": [5, 4, 6]}
    assert entry["arguments"]["depth"] == {"dtype": "float32", "shape": [4, 6]}
    assert entry["arguments"]["gain"] == 1.5
    assert (entry["step"], entry["map_version"], entry["error"]) == (12, 3, "")
    assert entry["device"] == ("cpu" if device == "cpu" else "cuda:0")
    assert (entry["stream"] is None) == (device == "cpu")
    assert entry["thread"] == threading.current_thread().name
    assert entry["duration_ms"] > 0
    assert entry["started_unix_s"] >= make["started_unix_s"] > 1.7e9


def test_a_failed_operation_is_recorded_with_its_error(
    flight: FlightRecorder, tmp_path: Path
) -> None:
    with pytest.raises(NativeError):
        evaluate(gain=float("nan"))
    flight.write(tmp_path / "flight.jsonl")
    entry = read_flight(tmp_path / "flight.jsonl")[-1]
    assert entry["error"].startswith("NativeError: ImageLoss.evaluate: gain must be")
    assert entry["arguments"]["gain"] == "nan"
    assert entry["arguments"]["rendered"] == "torch.float32, (5, 4, 6), on cpu"
    assert entry["duration_ms"] is not None


def test_the_ring_keeps_the_last_operations_and_no_tensor(flight: FlightRecorder) -> None:
    kept = []
    for i in range(20):
        image = torch.zeros(5, 3, 4)
        kept.append(weakref.ref(image))
        out = {"gradient": image.clone(), "error": image[0].clone()}
        ImageLoss(LossWeights()).evaluate(image, image[:3].clone(), image[0].clone(), **out)
        del image
        if i == 10:
            with pytest.raises(NativeError):
                evaluate(0, 0)
    gc.collect()
    entries = flight.entries()
    assert [entry.index for entry in entries] == list(range(34, 42))
    assert all(reference() is None for reference in kept)
    flight.clear()
    assert flight.entries() == []


def test_every_thread_has_its_own_context(flight: FlightRecorder) -> None:
    barrier = threading.Barrier(2)

    def work(name: str, version: int) -> None:
        for step in range(3):
            flight.set_context(step=step, map_version=version)
            flight.set_context(step=step)  # the version stays
            barrier.wait(timeout=60)
            flight.begin(name, "cpu", None).finish()
            barrier.wait(timeout=60)

    threads = [
        threading.Thread(target=work, args=(name, i), name=name)
        for i, name in enumerate(("tracking", "mapping"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = {(e.operation, e.thread, e.step, e.map_version) for e in flight.entries()}
    assert seen == {
        (name, name, step, i) for i, name in enumerate(("tracking", "mapping")) for step in range(3)
    }


def test_threads_lose_no_entry_while_another_writes(tmp_path: Path) -> None:
    flight, count, stop = FlightRecorder(4000), 1000, threading.Event()

    def work() -> None:
        for i in range(count):
            entry = flight.begin("work", "cpu", None)
            for name in "abcd":
                entry.arguments[name] = i
            entry.finish()

    def write() -> None:
        while not stop.is_set():
            flight.write(tmp_path / "flight.jsonl")

    threads = [threading.Thread(target=work) for _ in range(4)]
    writer = threading.Thread(target=write)
    for thread in (writer, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    writer.join()
    flight.write(tmp_path / "flight.jsonl")
    entries = read_flight(tmp_path / "flight.jsonl")
    assert [entry["index"] for entry in entries] == list(range(4 * count))


def test_an_operation_that_still_runs_has_no_duration(
    flight: FlightRecorder, tmp_path: Path
) -> None:
    flight.begin("Adam.step", "cpu", None)
    flight.write(tmp_path / "flight.jsonl")
    (entry,) = read_flight(tmp_path / "flight.jsonl")
    assert entry["duration_ms"] is None


def test_the_process_has_one_recorder() -> None:
    recorder.clear()
    evaluate()
    assert [e.operation for e in recorder.entries()] == ["ImageLoss.make", "ImageLoss.evaluate"]


def test_files_that_cannot_be_written_or_read_are_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        FlightRecorder().write(blocked / "flight.jsonl")
    with pytest.raises(DatasetError, match="cannot read"):
        read_flight(tmp_path / "missing.jsonl")
    for text in ("{", "[]\n", json.dumps({"operation": "x"}), '{"arguments": 1, "operation": ""}'):
        blocked.write_text(text)
        with pytest.raises(DatasetError, match="is damaged"):
            read_flight(blocked)
