"""A journal in front of a source that cannot be read again: nothing that was logged is lost."""

from __future__ import annotations

import errno
import os
import pickle
import random
import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tailrace import sources
from tailrace.checkpoint.errors import CheckpointError, DamagedError
from tailrace.checkpoint.folder import LocalFolder
from tailrace.connectors.journal import KEPT_EPOCHS, Journaled, JournalReader
from tailrace.connectors.journal_log import BEGINNING, JournalLog, Place
from tailrace.connectors.sockets import ListenReader
from tailrace.runtime.reading import SourceStep
from tailrace.runtime.source import Reader, Source, Split
from tests.connectors.epochs import in_child, kill
from tests.connectors.reading import serve


class Tap(Source, Reader):
    """What is put in comes out once."""

    def __init__(self) -> None:
        self.water: deque[Any] = deque()
        self.ended = False
        self.closed = 0

    def open(self, split: Split, clock_ns: Callable[[], int], position: Any = None) -> Reader:
        return self

    def poll(self, most: int) -> list[Any] | None:
        if not self.water and self.ended:
            return None
        return [self.water.popleft() for _ in range(min(most, len(self.water)))]

    def due_ns(self) -> int | None:
        return 0 if self.water or self.ended else None

    def close(self) -> None:
        self.closed += 1


def bound(source: Source, folder: Path) -> Journaled:
    made = Journaled(source).bind(str(folder))
    assert isinstance(made, Journaled)
    return made


def opened(tap: Source, folder: Path, position: Any = None) -> JournalReader:
    reader = bound(tap, folder).open(Split(""), lambda: 7, position)
    assert isinstance(reader, JournalReader)
    return reader


def drink(reader: Reader | SourceStep, count: int, most: int = 100) -> list[Any]:
    """Poll, as a worker does, until so many records have come."""
    records: list[Any] = []
    while len(records) < count:
        some = reader.poll(min(most, count - len(records)))
        assert some is not None, f"it ended after {records}"
        records += some
        if not some and reader.due_ns() != 0:
            found = reader.filenos() if isinstance(reader, SourceStep) else [reader.fileno()]
            select.select([one for one in found if one is not None], [], [], 10)
    return records


def segments(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.log"))


def test_records_come_out_when_they_are_logged_and_latency_counts_from_their_coming(
    tmp_path: Path,
) -> None:
    tap = Tap()
    with closing(opened(tap, tmp_path)) as reader:
        tap.water.extend("abc")
        assert drink(reader, 3) == ["a", "b", "c"]
        assert reader.emitted_ns == 7
        log = JournalLog(
            LocalFolder(tmp_path), segments(tmp_path)[0].parent.relative_to(tmp_path).as_posix()
        )
        assert [one for group in log.groups(BEGINNING, log.before) for one in group.records] == [
            *"abc"
        ]
    assert tap.closed == 1


def test_nothing_comes_out_before_it_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = threading.Event()
    append = JournalLog.append

    def slow(self: JournalLog, records: list[Any]) -> Place:
        allowed.wait()
        return append(self, records)

    monkeypatch.setattr(JournalLog, "append", slow)
    tap = Tap()
    with closing(opened(tap, tmp_path)) as reader:
        for record in "abc":
            tap.water.append(record)
            assert reader.poll(10) == []
        assert reader.due_ns() is None
        allowed.set()
        assert drink(reader, 3) == ["a", "b", "c"]


def test_what_comes_while_the_disk_is_busy_is_written_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed, begun = threading.Event(), threading.Event()
    groups: list[list[Any]] = []
    append = JournalLog.append

    def slow(self: JournalLog, records: list[Any]) -> Place:
        groups.append(records)
        begun.set()
        allowed.wait()
        return append(self, records)

    monkeypatch.setattr(JournalLog, "append", slow)
    tap = Tap()
    with closing(opened(tap, tmp_path)) as reader:
        for number in range(20):
            tap.water.append(number)
            reader.poll(10)
            begun.wait()
        allowed.set()
        assert drink(reader, 20) == list(range(20))
    assert groups == [[0], list(range(1, 20))]


@pytest.mark.parametrize("polled", [0, 1, 5, 9, 10])
def test_who_goes_on_from_a_position_gets_what_was_logged_behind_it(
    polled: int, tmp_path: Path
) -> None:
    tap = Tap()
    before = opened(tap, tmp_path)
    tap.water.extend(range(10))
    assert drink(before, polled, most=3) == list(range(polled))
    position = pickle.loads(pickle.dumps(before.position()))
    drink(before, 10 - polled)
    tap.water.extend([10, 11])
    before.poll(10)
    before.close()  # these two are logged and were given to nobody
    tap.water.extend([12, 13])
    with closing(opened(tap, tmp_path, position)) as after:
        assert drink(after, 14 - polled) == list(range(polled, 14))
    with closing(opened(tap, tmp_path, position)) as again:
        assert drink(again, 14 - polled) == list(range(polled, 14))
    with closing(opened(tap, tmp_path)) as anew:
        assert drink(anew, 14) == list(range(14))


def test_a_killed_worker_loses_nothing_that_it_has_given_out(tmp_path: Path) -> None:
    for seed in range(8):
        folder = tmp_path / str(seed)
        heard, told = os.pipe()

        def live(folder: Path = folder, seed: int = seed, told: int = told) -> None:
            chance, tap = random.Random(seed), Tap()
            reader = opened(tap, folder)
            for number in range(40):
                tap.water.append(number)
                for record in reader.poll(10) or []:
                    os.write(told, bytes([record]))
                if chance.random() < 0.05:
                    kill()
            drink(reader, 1)
            kill()

        assert in_child(live) == 9
        os.close(told)
        given = list(os.read(heard, 100))
        os.close(heard)
        assert given == list(range(len(given)))
        tap = Tap()
        tap.water.append("live")
        with closing(opened(tap, folder)) as reader:
            records: list[Any] = []
            while "live" not in records:
                records += drink(reader, 1)
        *logged, _ = records
        assert logged == list(range(len(logged)))
        assert len(logged) >= len(given)


def test_going_back_keeps_the_connection_and_reads_the_log(tmp_path: Path) -> None:
    for seed in range(30):
        chance, tap = random.Random(seed), Tap()
        reader = opened(tap, tmp_path / str(seed))
        out: list[int] = []
        count, places = 0, {0: None}
        while len(out) < 60:
            for _ in range(chance.randint(0, 5)):
                tap.water.append(count)
                count += 1
            out += reader.poll(chance.randint(1, 4)) or []
            if chance.random() < 0.3:
                places[len(out)] = reader.position()  # type: ignore[assignment]
            if chance.random() < 0.2:
                at = chance.choice(list(places))
                assert reader.go_back(places[at])
                del out[at:]
                places = {one: place for one, place in places.items() if one <= at}
        assert out == list(range(len(out)))
        assert tap.closed == 0
        reader.close()


def test_segments_that_no_kept_epoch_needs_are_deleted(tmp_path: Path) -> None:
    tap = Tap()
    reader = bound(tap, tmp_path).open(Split(""), lambda: 0)
    assert isinstance(reader, JournalReader)
    reader._log._segment_bytes = 1  # one group each
    places = []
    for number in range(10):
        tap.water.append(number)
        drink(reader, 1)
        places.append(reader.position())
        reader.acknowledge(reader.position())
    reader.close()
    left = [int(path.name[:12]) for path in segments(tmp_path)]
    assert left == [one.segment for one in places[-KEPT_EPOCHS:]]
    with closing(opened(tap, tmp_path, places[-KEPT_EPOCHS])) as again:
        assert drink(again, KEPT_EPOCHS - 1) == list(range(10 - KEPT_EPOCHS + 1, 10))
    closed = tap.closed
    with pytest.raises(DamagedError, match=r"000000000002-.* is not there any more"):
        opened(tap, tmp_path, places[1])
    with pytest.raises(DamagedError, match=r"00000000000.-.* is not there any more"):
        opened(tap, tmp_path)
    assert tap.closed == closed + 2


def test_the_end_comes_behind_all_that_was_logged(tmp_path: Path) -> None:
    tap = Tap()
    with closing(opened(tap, tmp_path)) as reader:
        tap.water.extend("ab")
        tap.ended = True
        assert drink(reader, 2, most=1) == ["a", "b"]
        assert reader.poll(1) is None
        assert reader.due_ns() == 0


def test_a_source_that_gives_more_than_is_taken_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.connectors.journal._MOST_WAITING", 10)
    tap = Tap()
    tap.water.extend(range(100))
    with closing(opened(tap, tmp_path)) as reader:
        reader.poll(0)
        for _ in range(50):
            reader._take_in(7)
        assert len(tap.water) == 100 - 14
        assert reader.due_ns() in (None, 0)
        assert drink(reader, 100) == list(range(100))


def test_a_disk_that_fails_fails_the_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    tap = Tap()
    tap.water.append(1)
    reader = opened(tap, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", full)
        with pytest.raises(CheckpointError, match=r"cannot write .*No space left on device"):
            drink(reader, 1)
    assert reader.due_ns() == 0
    assert not reader.go_back(None)
    reader.close()


# ---- as a source ----


def test_lines_from_the_network_survive_the_worker(tmp_path: Path) -> None:
    source = sources.listen(0, journal=True).bind(str(tmp_path))
    step = serve(source, checkpoints=True)
    (served,) = step._served
    assert isinstance(served.reader, JournalReader)
    assert isinstance(served.reader._reader, ListenReader)
    with socket.create_connection(served.reader._reader.address) as client:
        client.sendall(b"a\nb\n")
        assert drink(step, 2) == ["a", "b"]
        step.cut()
        deque(step.committed(), maxlen=0)
        client.sendall(b"c\nd\n")
        assert drink(step, 2) == ["c", "d"]
        step.retire()  # another worker has failed: this one goes back, and keeps its clients
        after = serve(source, positions=step.safe, checkpoints=True, kept=step.kept)
        client.sendall(b"e\n")
        assert drink(after, 3) == ["c", "d", "e"]
    after.close()
    killed = serve(source, positions=step.safe, checkpoints=True)
    assert drink(killed, 3) == ["c", "d", "e"]
    killed.close()


def test_without_checkpoints_there_is_no_journal() -> None:
    tap = Tap()
    assert Journaled(tap).open(Split(""), lambda: 0) is tap
    assert Journaled(tap).rewinds


def test_a_source_that_rewinds_needs_no_journal() -> None:
    with pytest.raises(ValueError, match=r"Items can be read again .* needs no journal"):
        sources.journaled(sources.items([1]))
