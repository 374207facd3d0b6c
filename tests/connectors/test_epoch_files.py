"""File sinks under checkpoints: whatever dies when, the files hold every record exactly once."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailrace import sinks, sources
from tailrace.connectors.epoch_files import Prepared, epoch_name
from tailrace.runtime.sink import Sink, Writing
from tests.connectors.epochs import (
    PER_EPOCH,
    DiskError,
    Manifest,
    begin_all,
    chances,
    die_at,
    epoch_of,
    fail,
    in_child,
    kill,
    live,
    step_of,
)
from tests.connectors.reading import read_share
from tests.small import small_process

SINKS: dict[str, Callable[[Path], Sink]] = {
    "text": sinks.text,
    "ndjson": sinks.ndjson,
    "text at the end": lambda folder: sinks.text(folder, every_s=None),
    "parquet": lambda folder: sinks.parquet(folder, {"n": pa.int64()}),
    "parquet, inferred": sinks.parquet,
    "parquet, many files": lambda folder: sinks.parquet(folder, {"n": pa.int64()}, every_rows=2),
}
EACH = pytest.mark.parametrize("kind", SINKS)


def numbers(kind: str, count: int = 4 * PER_EPOCH) -> list[Any]:
    return [{"n": n} if "parquet" in kind else n for n in range(count)]


def shown(folder: Path) -> list[Path]:
    return sorted(one for one in folder.iterdir() if not one.name.startswith("."))


def hidden(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir() if one.name.startswith(".")]


def found(kind: str, folder: Path) -> list[int]:
    if "parquet" in kind:
        return [n for one in shown(folder) for n in pq.read_table(one)["n"].to_pylist()]
    return [int(line) for line in read_share(sources.lines(folder))]


def check(kind: str, folder: Path, count: int = 4 * PER_EPOCH) -> None:
    """Every record once, and nothing else is left."""
    assert sorted(found(kind, folder)) == list(range(count))
    assert not hidden(folder)


@EACH
def test_files_appear_with_every_epoch_and_not_before(kind: str, tmp_path: Path) -> None:
    step = step_of(SINKS[kind](tmp_path), 0)
    for epoch in (1, 2, 3):
        before = found(kind, tmp_path)
        step.process(iter(numbers(kind)[epoch * 5 : epoch * 5 + 5]), 0)
        assert found(kind, tmp_path) == before
        step.cut(epoch)
        assert found(kind, tmp_path) == before
        step.committed(epoch)
        assert found(kind, tmp_path) == list(range(5, epoch * 5 + 5))
        assert not hidden(tmp_path)
    step.close()


@EACH
def test_an_epoch_without_records_makes_no_file(kind: str, tmp_path: Path) -> None:
    step = step_of(SINKS[kind](tmp_path), 0)
    assert step.cut(1) is None
    step.committed(1)
    step.finish()
    assert step.cut(2) is None
    step.close()
    assert list(tmp_path.iterdir()) == []


@EACH
def test_what_is_written_until_the_end_waits_for_the_last_epoch(kind: str, tmp_path: Path) -> None:
    step = step_of(SINKS[kind](tmp_path), 0)
    step.process(iter(numbers(kind)), 0)
    step.finish()
    assert not shown(tmp_path)
    step.cut(1)
    step.close()
    assert not shown(tmp_path)
    step.committed(1)  # which may come after the step was closed
    check(kind, tmp_path)


@EACH
def test_a_handle_can_be_committed_again_by_anybody(kind: str, tmp_path: Path) -> None:
    step = step_of(SINKS[kind](tmp_path), 0)
    step.process(iter(numbers(kind)), 0)
    handle = pickle.loads(pickle.dumps(step.cut(1)))
    for _ in range(3):
        step_of(SINKS[kind](tmp_path), 1, index=1, parallelism=2).committed(1, [handle])
        check(kind, tmp_path)
    step.committed(1)
    check(kind, tmp_path)


@EACH
def test_aborting_removes_what_was_prepared_and_may_be_done_again(
    kind: str, tmp_path: Path
) -> None:
    sink = SINKS[kind](tmp_path)
    step = step_of(sink, 0)
    step.process(iter(numbers(kind)), 0)
    handle = step.cut(1)
    for _ in range(2):
        sink.abort(handle)
        assert list(tmp_path.iterdir()) == []


@EACH
def test_rolling_back_in_place_drops_what_does_not_count(kind: str, tmp_path: Path) -> None:
    records = numbers(kind)
    step = step_of(SINKS[kind](tmp_path), 0)
    step.process(iter(records[:3]), 0)
    step.cut(1)
    step.committed(1)
    step.process(iter(records[3:5]), 0)
    step.cut(2)
    step.process(iter(records[5:7]), 0)
    step.roll_back(1)
    assert not hidden(tmp_path)
    step.process(iter(records[3:]), 0)
    step.cut(2)
    step.committed(2)
    check(kind, tmp_path)


@EACH
def test_rolling_back_to_an_epoch_that_counts_commits_it(kind: str, tmp_path: Path) -> None:
    """The manifest was there, and a worker died before anybody had said so."""
    records = numbers(kind)
    step = step_of(SINKS[kind](tmp_path), 0)
    step.process(iter(records[:5]), 0)
    step.cut(1)
    step.process(iter(records[5:9]), 0)
    step.roll_back(1)
    assert found(kind, tmp_path) == [0, 1, 2, 3, 4]
    step.process(iter(records[5:]), 0)
    step.cut(2)
    step.committed(2)
    check(kind, tmp_path)


@pytest.fixture(scope="module")
def small() -> Iterator[Executor]:
    with small_process() as executor:
        yield executor


@EACH
@pytest.mark.parametrize("die", [kill, fail])
def test_a_crash_at_any_use_of_the_disk_loses_and_repeats_nothing(
    kind: str, die: Callable[[], object], tmp_path: Path, small: Executor
) -> None:
    small.submit(crash_at_any_use_of_the_disk, kind, die, tmp_path).result()


def crash_at_any_use_of_the_disk(kind: str, die: Callable[[], object], place: Path) -> None:
    records = numbers(kind, 2 * PER_EPOCH)
    make, number, status = SINKS[kind], 0, 1
    while status:
        number += 1
        folder = place / str(number)

        def once(folder: Path = folder, number: int = number) -> None:
            reached = die_at(number, die)
            with suppress(DiskError):
                live(lambda: make(folder / "out"), records, folder / "manifest")
            if reached():
                kill()

        folder.mkdir()
        status = in_child(once)
        assert status in (0, 9)
        live(lambda: make(folder / "out"), records, folder / "manifest")  # noqa: B023
        check(kind, folder / "out", len(records))
    assert number > 20


@EACH
def test_many_crashes_and_changes_of_parallelism_lose_and_repeat_nothing(
    kind: str, tmp_path: Path, small: Executor
) -> None:
    small.submit(crash_and_change, kind, tmp_path).result()


def crash_and_change(kind: str, place: Path) -> None:
    records, make = numbers(kind), SINKS[kind]
    for seed in range(10):
        chance, folder = chances(seed), place / str(seed)
        folder.mkdir()

        def once(folder: Path = folder, chance: Any = chance) -> None:
            die_at(chance.randint(1, 60), kill)
            live(lambda: make(folder / "out"), records, folder / "manifest", chance.randint(1, 4))

        for _ in range(8):
            assert in_child(once) in (0, 9)
            chance.random()
        live(lambda: make(folder / "out"), records, folder / "manifest")  # noqa: B023
        check(kind, folder / "out")


@EACH
def test_who_lives_rolls_back_while_who_died_is_replaced(kind: str, tmp_path: Path) -> None:
    records, make = numbers(kind), SINKS[kind]
    for seed in range(25):
        chance, folder = chances(seed), tmp_path / str(seed)
        folder.mkdir()
        manifest = Manifest(folder / "manifest")
        steps = begin_all(lambda: make(folder / "out"), manifest, 3)  # noqa: B023
        buried = []
        while manifest.epoch * PER_EPOCH < len(records):
            if chance.random() < 0.5:
                epoch_of(steps, records, manifest)
                continue
            epoch = manifest.epoch + 1
            some = records[manifest.epoch * PER_EPOCH : epoch * PER_EPOCH]
            for index, step in enumerate(steps):  # some have cut, some have not: then one dies
                step.process(iter(some[index::3]), 0)
                if chance.random() < 0.7:
                    step.cut(epoch)
                    step.process(iter(records[:2]), 0)
            dead = chance.randrange(3)
            buried.append(steps[dead])
            steps[dead] = step_of(make(folder / "out"), manifest.epoch, dead, 3)
            for index, step in enumerate(steps):
                if index != dead:
                    step.roll_back(manifest.epoch)
                elif manifest.epoch:
                    step.put_shared(manifest.snapshots[dead])
        check(kind, folder / "out")
        for step in [*steps, *buried]:
            step.close()


def test_only_what_is_left_of_the_same_job_and_operator_is_removed(tmp_path: Path) -> None:
    names = [
        epoch_name(Writing(job, operator, index, 1), epoch, 0, "txt")
        for job in ("mine", "mine-2", "yours")
        for operator in ("to text", "to_text", "text", "text_5")
        for index in (0, 1, 2)
        for epoch in (4, 5, 6)
    ]
    assert len(set(names)) == len(names)
    for name in names:
        for hidden_or_not in (name, f".{name}.0123abcd.tmp"):
            (tmp_path / hidden_or_not).touch()
    for name in ("mine.txt", ".mine.tmp", "part-00000-mine-to_text-00000006.txt"):
        (tmp_path / name).touch()
    before = {one.name for one in tmp_path.iterdir()}
    step_of(sinks.text(tmp_path), 5, 1, 2, job="mine", operator="to text")
    gone = before - {one.name for one in tmp_path.iterdir()}
    name = epoch_name(Writing("mine", "to text", 1, 2), 6, 0, "txt")
    assert gone == {name, f".{name}.0123abcd.tmp"}
    step_of(sinks.text(tmp_path), 5, 0, 2, job="mine", operator="to text")
    gone = before - {one.name for one in tmp_path.iterdir()}
    assert len(gone) == 6
    assert all("mine-to_text_" in name and "-00000006-" in name for name in gone)


def test_one_that_was_taken_for_dead_does_not_come_in_the_way(tmp_path: Path) -> None:
    zombie = step_of(sinks.text(tmp_path), 0)
    zombie.process(iter("xyz"), 0)
    step = step_of(sinks.text(tmp_path), 0)
    step.process(iter(["1"]), 0)
    zombie.process(iter("xyz" * 100_000), 0)
    zombie.cut(1)
    zombie.process(iter("xyz" * 100_000), 0)
    step.cut(1)
    step.committed(1)
    zombie.close()
    assert read_share(sources.lines(tmp_path)) == ["1"]


def test_a_file_that_was_moved_away_after_its_commit_is_no_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gone = Prepared(str(tmp_path), ((".hidden", "shown"),))
    with caplog.at_level(logging.WARNING):
        sinks.text(tmp_path).commit(gone)
    assert "shown is not there, and was committed before or is lost" in caplog.text


def test_a_schema_that_rows_gave_stays_when_the_job_goes_on_elsewhere(tmp_path: Path) -> None:
    step = step_of(sinks.parquet(tmp_path), 0)
    step.process(iter([{"a": 1, "b": None}]), 0)
    step.cut(1)
    shared = pickle.loads(pickle.dumps(step.shared()))
    step.committed(1)
    later = step_of(sinks.parquet(tmp_path), 1)
    later.put_shared(shared)
    later.process(iter([{"a": 2}]), 0)
    later.cut(2)
    later.committed(2)
    one, two = (pq.read_schema(path) for path in shown(tmp_path))
    assert one.equals(two)
    assert two.names == ["a", "b"]


@EACH
def test_records_that_fail_alone_do_so_under_checkpoints(kind: str, tmp_path: Path) -> None:
    step = step_of(SINKS[kind](tmp_path), 0)
    bad = {"n": "x" * 10} if "parquet" in kind else "a\nb" if "text" in kind else object()
    records = iter([*numbers(kind, 5), bad])
    with pytest.raises((ValueError, TypeError)):
        step.process(records, 0)
    step.cut(1)
    step.committed(1)
    assert found(kind, tmp_path) == [0, 1, 2, 3, 4]


@EACH
def test_an_epoch_in_which_the_disk_failed_for_a_moment_is_not_prepared(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the job may have been told to skip records that raise."""
    records, step = numbers(kind), step_of(SINKS[kind](tmp_path), 0)

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError("for a moment")

    with monkeypatch.context() as patch, suppress(OSError):
        patch.setattr(Path, "open", refuse)
        step.process(iter(records[:5]), 0)
        step.cut(1)
    step.process(iter(records[5:]), 0)
    with pytest.raises(OSError, match=r"cannot be prepared in .*for a moment"):
        step.cut(1)
    step.roll_back(0)
    step.process(iter(records), 0)
    step.cut(1)
    step.committed(1)
    check(kind, tmp_path)


def test_a_full_disk_fails_the_epoch_and_not_the_one_before(tmp_path: Path) -> None:
    step = step_of(sinks.text(tmp_path), 0)
    step.process(iter("a"), 0)
    step.cut(1)
    step.committed(1)
    sink = step._sink
    step.process(iter("b"), 0)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, sink._epochs.file.fileno())  # type: ignore[attr-defined]
    os.close(full)
    with pytest.raises(OSError, match="No space left"):
        step.cut(2)
    step.roll_back(1)
    assert not hidden(tmp_path)
    step.process(iter("b"), 0)
    step.cut(2)
    step.committed(2)
    assert read_share(sources.lines(tmp_path)) == ["a", "b"]


@EACH
def test_only_sync_waits_for_the_disk(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    folder = tmp_path / "files"
    step = step_of(SINKS[kind](folder), 0)
    step.process(iter(numbers(kind, 3)), 0)
    step.cut(1)
    assert not synced
    prepared = hidden(folder)
    step.sync(step.unsynced)
    assert sorted(synced) == sorted([*prepared, folder.name])
    synced.clear()
    step.committed(1)
    assert not synced
    step.cut(2)  # in which there is nothing: what was shown has to last all the same
    step.sync(step.unsynced)
    assert synced == [folder.name]
    step.close()


@EACH
def test_a_url_is_refused_when_the_sink_is_made_and_file_urls_are_paths(
    kind: str, tmp_path: Path
) -> None:
    make: Any = SINKS[kind]
    for url in ("s3://bucket/out", "hdfs://namenode/out", "file://elsewhere/out"):
        with pytest.raises(ValueError, match=f"cannot write to '{url}'.*Give it a path"):
            make(url)
    with pytest.raises(ValueError, match="cannot write to 's3:/bucket/out'"):
        make(Path("s3://bucket/out"))
    step = step_of(make((tmp_path / "a b").as_uri()), 0)
    step.process(iter(numbers(kind)), 0)
    step.cut(1)
    step.committed(1)
    check(kind, tmp_path / "a b")
    step.close()


@EACH
def test_a_prepared_file_that_is_gone_before_its_epoch_counts_is_told(
    kind: str, tmp_path: Path
) -> None:
    step = step_of(SINKS[kind](tmp_path), 0)
    step.process(iter(numbers(kind, 3)), 0)
    step.cut(1)
    name = hidden(tmp_path)[0]
    (tmp_path / name).unlink()
    for _ in range(2):  # a worker tries again
        with pytest.raises(FileNotFoundError, match=f"{name}' was prepared .* and is gone before"):
            step.sync(step.unsynced)
    step.roll_back(0)
    step.sync(step.unsynced)  # by a thread that is late: nobody waits for these files any more
    step.close()


@EACH
def test_whoever_reads_a_file_that_counts_may_take_it_away(kind: str, tmp_path: Path) -> None:
    step = step_of(SINKS[kind](tmp_path), 0)
    step.process(iter(numbers(kind, 3)), 0)
    handle = step.cut(1)
    step.sync(step.unsynced)
    step.committed(1)
    for path in shown(tmp_path):
        path.unlink()
    step.cut(2)
    assert step.unsynced == (handle,)
    step.sync(step.unsynced)
    step.close()
    later = step_of(SINKS[kind](tmp_path), 2)
    later.committed(2, [handle])
    later.cut(3)
    later.sync(later.unsynced)
    later.close()
