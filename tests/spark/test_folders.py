"""What a job is refused that its folder, or a savepoint, cannot give; without a Spark."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tailrace as tr
from tailrace.checkpoint.copying import NOTES, copy_notes
from tailrace.checkpoint.epochs import Stage
from tailrace.checkpoint.errors import CheckpointError, LeaseHeldError
from tailrace.checkpoint.folder import folder_at
from tailrace.checkpoint.manifest import Manifest
from tailrace.checkpoint.store import Store
from tailrace.connectors.journal_log import JournalLog
from tailrace.control.coordinator import Coordinator
from tailrace.control.protocol import Settled, Snapshotted
from tailrace.graph.model import Graph
from tailrace.runtime.guarantees import bound
from tailrace.spark.checkpoints import Checkpoints, check_notes


def counting() -> tr.Topology:
    topology = tr.Topology("counting")
    topology.source([1, 2]).key_by().scan(lambda count, n: (count or 0) + 1).sink(print)
    return topology


def epoch_in(folder: Path) -> Path:
    manifest = Manifest(3, 1, 0, "job", "counting", 0.0)
    Store(folder_at(folder)).commit(manifest)
    return folder / manifest.file


def test_a_folder_with_nothing_but_damaged_epochs_is_refused_and_stays_as_it_is(
    tmp_path: Path,
) -> None:
    file = epoch_in(tmp_path)
    file.write_bytes(file.read_bytes()[:-20])
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"no epoch in .* can be gone on from: epoch 3"):
            Checkpoints(counting().graph, tmp_path)
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_a_folder_is_free_again_after_a_refusal_and_only_then(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="retain is 0; it must be a whole number, at least 1"):
        Checkpoints(counting().graph, tmp_path, keep=0)
    with pytest.raises(CheckpointError, match="there is no epoch in"):
        Checkpoints(counting().graph, tmp_path / "new", restore=tmp_path / "nothing")
    first = Checkpoints(counting().graph, tmp_path / "new")
    with pytest.raises(LeaseHeldError, match="is in use by job 'counting'"):
        Checkpoints(counting().graph, tmp_path / "new")
    first.close()
    Checkpoints(counting().graph, tmp_path / "new").close()


def journaled(folder: Path) -> Graph:
    topology = tr.Topology("journal")
    topology.source(tr.sources.listen(0, journal=True), name="orders").sink(print)
    return bound(topology.graph, str(folder))


def test_a_journal_goes_on_in_another_folder_and_may_have_more_there(tmp_path: Path) -> None:
    epoch_in(tmp_path / "saved")
    name = f"{NOTES}/orders/journal/0-of-1/000000000001.log"
    folder_at(tmp_path / "saved").write(name, b"logged")
    new = tmp_path / "new"
    Checkpoints(journaled(new), new, restore=tmp_path / "saved").close()
    assert (new / name).read_bytes() == b"logged"
    more = f"{NOTES}/orders/journal/0-of-1/000000000002.log"
    folder_at(new).write(more, b"what came before the first epoch, until the driver died")
    Checkpoints(journaled(new), new, restore=tmp_path / "saved").close()
    assert (new / more).exists()


def test_a_folder_with_the_journal_of_another_job_is_refused(tmp_path: Path) -> None:
    epoch_in(tmp_path / "saved")
    for where in ("saved", "new"):
        folder_at(tmp_path / where).write(f"{NOTES}/orders/journal/1.log", where.encode())
    new = tmp_path / "new"
    with pytest.raises(CheckpointError, match="is of another job than that in"):
        Checkpoints(journaled(new), new, restore=tmp_path / "saved")
    assert folder_at(new).read(f"{NOTES}/orders/journal/1.log") == b"new"


def test_what_spark_notes_elsewhere_is_missed(tmp_path: Path) -> None:
    epoch_in(tmp_path / "saved")
    streaming: Any = SimpleNamespace(isStreaming=True)
    topology = tr.Topology("stream")
    topology.source(tr.sources.dataframe(streaming), name="rows").sink(print)
    new = tmp_path / "new"
    graph = bound(topology.graph, str(new))
    with pytest.raises(CheckpointError, match="has nothing of what Spark notes of 'rows'"):
        Checkpoints(graph, new, restore=tmp_path / "saved")
    folder_at(tmp_path / "saved").write(f"{NOTES}/rows/spark/offsets/0", b"")
    Checkpoints(graph, new, restore=tmp_path / "saved").close()
    assert (new / NOTES / "rows/spark/offsets/0").exists()
    with pytest.raises(CheckpointError, match=r"without checkpoint=, and the source 'rows'"):
        check_notes(graph, None, "saved")


def test_what_a_journal_had_logged_comes_from_its_copy(tmp_path: Path) -> None:
    first, second = (folder_at(tmp_path / where) for where in ("first", "second"))
    log = JournalLog(first, f"{NOTES}/orders/journal/0")
    place = log.append([1, 2, 3])
    log.append([4])
    copy_notes(first, second)
    log.append([5])
    log.close()
    processed = place._replace(count=2)
    copied = JournalLog(second, f"{NOTES}/orders/journal/0", processed)
    rest = [one for group in copied.groups(processed, copied.before) for one in group.records]
    assert rest == [3, 4]
    copied.close()


@pytest.mark.parametrize("over", [False, True])
def test_a_savepoint_at_the_end_needs_a_last_epoch(tmp_path: Path, over: bool) -> None:
    checkpoints = Checkpoints(counting().graph, tmp_path / "kept")
    coordinator: Any = SimpleNamespace(checkpoint=lambda *_: None)
    checkpoints.begin(coordinator, workers=1, every_s=1.0)
    assert checkpoints._epochs is not None
    checkpoints._epochs.over = over  # as it is when the job has heard of it
    checkpoints.close()
    if over:
        assert checkpoints.copy_last(tmp_path / "saved").job == checkpoints.job
    else:
        with pytest.raises(
            CheckpointError, match=r"has ended without a last epoch, so nothing was"
        ):
            checkpoints.copy_last(tmp_path / "saved")
        assert not (tmp_path / "saved").exists()


def until(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60.0
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_savepoint_has_what_came_before_it_was_asked_for(tmp_path: Path) -> None:
    """So it is none of an epoch that is under way."""
    checkpoints = Checkpoints(counting().graph, tmp_path / "kept")
    coordinator = Coordinator(1, "127.0.0.1", lambda: None, layout=None)
    checkpoints.begin(coordinator, workers=1, every_s=1000.0)
    roster, epochs = coordinator.roster, checkpoints._epochs
    assert epochs is not None
    try:
        epochs.go(time.monotonic())
        roster.ask_epoch()
        assert (epochs.stage, epochs.begun) == (Stage.CUTTING, 1)
        told = Snapshotted(0, 1, (), (), (), ended=False)
        with ThreadPoolExecutor(1) as pool:
            saved = pool.submit(checkpoints.savepoint, coordinator, tmp_path / "saved", 60.0)
            until(lambda: epochs._asked == 1)
            coordinator._decide(lambda: roster.hear(replace(told, epoch=1), speaker=7))
            until(lambda: epochs.counted == 1)
            assert not saved.done()
            coordinator._decide(lambda: roster.hear(Settled(0, 1), speaker=7))
            until(lambda: epochs.begun == 2)
            assert not saved.done()
            coordinator._decide(lambda: roster.hear(replace(told, epoch=2), speaker=7))
            assert saved.result().epoch == 2
        assert folder_at(tmp_path / "saved").names("epochs") == ["epochs/00000002-1.json"]
    finally:
        coordinator.stop(drain=False)
        coordinator.join()
        checkpoints.close()


def test_a_savepoint_of_a_job_that_ends_meanwhile_is_refused(tmp_path: Path) -> None:
    checkpoints = Checkpoints(counting().graph, tmp_path / "kept")
    coordinator: Any = SimpleNamespace(checkpoint=lambda *_: None, ask_epoch=lambda: lambda: True)
    checkpoints.begin(coordinator, workers=1, every_s=1.0)
    checkpoints.close()
    with pytest.raises(CheckpointError, match="the job ended before its epoch was copied"):
        checkpoints.savepoint(coordinator, tmp_path / "saved", 60.0)


def test_the_folder_of_a_job_that_runs_is_not_restored_from(tmp_path: Path) -> None:
    owner = Checkpoints(counting().graph, tmp_path / "kept")
    Store(folder_at(tmp_path / "kept")).commit(replace(owner.committer.manifest, epoch=4))
    for _ in range(2):
        with pytest.raises(LeaseHeldError, match=r"is the folder of job 'counting' .*savepoint"):
            Checkpoints(counting().graph, tmp_path / "new", restore=tmp_path / "kept")
    owner.close()
    following = Checkpoints(counting().graph, tmp_path / "new", restore=tmp_path / "kept")
    assert following.going_on.epoch == 4
    following.close()


def test_a_last_epoch_that_another_has_gone_on_from_is_not_copied(tmp_path: Path) -> None:
    checkpoints = Checkpoints(counting().graph, tmp_path / "kept")
    coordinator: Any = SimpleNamespace(checkpoint=lambda *_: None)
    checkpoints.begin(coordinator, workers=1, every_s=1.0)
    assert checkpoints._epochs is not None
    checkpoints._epochs.over = True
    checkpoints.close()
    following = Checkpoints(counting().graph, tmp_path / "kept")
    with pytest.raises(LeaseHeldError, match="is in use by job 'counting'"):
        checkpoints.copy_last(tmp_path / "saved")
    following.close()
    with pytest.raises(CheckpointError, match="no longer the newest that counts"):
        checkpoints.copy_last(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
