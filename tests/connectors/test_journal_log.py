"""The log of a journal: what was logged is read, or somebody hears that it cannot be."""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tailrace.checkpoint.errors import CheckpointError, DamagedError, VersionError
from tailrace.checkpoint.folder import Folder, LocalFolder
from tailrace.connectors.journal_format import Ended, block_of, header_of, read_header
from tailrace.connectors.journal_log import BEGINNING, JournalLog, Place
from tests.checkpoint.memory import Memory

UNDER = "journal/x"


def log_in(folder: Any, start: Place = BEGINNING, **options: Any) -> JournalLog:
    return JournalLog(folder, UNDER, start, **options)


def logged(log: JournalLog, start: Place = BEGINNING) -> list[Any]:
    return [one for group in log.groups(start, log.end) for one in group.records]


def read(folder: Folder, start: Place = BEGINNING) -> list[Any]:
    """What somebody reads who opens the log now, and leaves nothing there."""
    log = log_in(folder, start)
    try:
        return logged(log, start)
    finally:
        log.close()
        (own,) = [name for name in folder.names(UNDER) if log._writer in name]
        folder.delete(own)


def segments(folder: Folder) -> list[str]:
    return folder.names(UNDER)


@pytest.fixture(params=["disk", "objects"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    return LocalFolder(tmp_path) if request.param == "disk" else Memory()


def change(folder: Folder, name: str, how: Callable[[bytearray], object]) -> None:
    data = bytearray(folder.read(name))
    how(data)
    folder.write(name, bytes(data))


def flip(at: int) -> Callable[[bytearray], object]:
    def flipped(data: bytearray) -> None:
        data[at] ^= 1

    return flipped


def cut_off(count: int) -> Callable[[bytearray], object]:
    def shortened(data: bytearray) -> None:
        del data[-count:]

    return shortened


@pytest.mark.parametrize("kind", ["disk", "objects"])
def test_any_history_of_a_log_is_read_from_any_place(kind: str, tmp_path: Path) -> None:
    for seed in range(10 if kind == "disk" else 40):
        chance = random.Random(seed)
        folder: Any = LocalFolder(tmp_path / str(seed)) if kind == "disk" else Memory()
        log = log_in(folder, segment_bytes=chance.choice([1, 100, 300, 1 << 20]))
        written: list[int] = []
        places = {0: BEGINNING}
        for _ in range(30):
            records = list(range(len(written), len(written) + chance.randint(1, 5)))
            place = log.append(records)
            for more in range(len(records)):
                places[len(written) + more + 1] = place._replace(count=place.count + more + 1)
            written += records
            if chance.random() < 0.2:
                log.close()
                log = log_in(folder, segment_bytes=chance.choice([1, 300]))
        for count, place in places.items():
            assert logged(log, place) == written[count:]
            if chance.random() < 0.1:
                assert read(folder, place) == written[count:]
        log.close()


def test_records_that_cannot_be_logged_are_told(folder: Folder) -> None:
    log = log_in(folder)
    with pytest.raises(TypeError, match="cannot be kept in the journal"):
        log.append([lambda: 0])
    log.append([1])
    assert logged(log) == [1]
    log.close()


# ---- damage ----


def in_several_segments(folder: Folder, groups: int = 12) -> list[str]:
    """Records 0, 1, 2 ..., two in a group; also of a writer that another took over from."""
    for writer in range(2):
        log = log_in(folder, segment_bytes=150)
        for number in range(groups // 2 * writer, groups // 2 * (writer + 1)):
            log.append([2 * number, 2 * number + 1])
        log.close()
    return segments(folder)


LAST_GROUP_BYTES = len(block_of(pickle.dumps([22, 23], 5)))
DAMAGES = {
    "in the last group": flip(-3),
    "the last byte": flip(-1),
    "the length of the last group": flip(-LAST_GROUP_BYTES),
    "the checksum of the last group": flip(10 - LAST_GROUP_BYTES),
    "in the first header": flip(20),
    "the first length": flip(1),
    "the last byte is missing": cut_off(1),
    "the last group is missing": cut_off(LAST_GROUP_BYTES),
    "half of it is missing": lambda data: data.__delitem__(slice(len(data) // 2, None)),
    "all is missing": bytearray.clear,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_no_damage_of_what_others_stand_behind_is_passed_over(damage: str, folder: Folder) -> None:
    names = in_several_segments(folder)
    assert len(names) > 5
    for name in names[:-1]:
        before = folder.read(name)
        change(folder, name, DAMAGES[damage])
        with pytest.raises(DamagedError, match=name):
            read(folder)
        folder.write(name, before)
    assert read(folder) == list(range(24))


def test_a_segment_that_is_gone_is_missed_unless_it_is_needed_no_more(folder: Folder) -> None:
    names = in_several_segments(folder)
    for name in names[:-1]:
        before = folder.read(name)
        folder.delete(name)
        with pytest.raises(DamagedError, match=f"{name} is not there any more"):
            read(folder)
        folder.write(name, before)
    log = log_in(folder)
    places = {group.records[0]: group.place for group in log.groups(BEGINNING, log.before)}
    for first, place in places.items():
        log.delete_before(place.segment)
        assert logged(log, place) == list(range(first, 24))
        assert read(folder, place) == list(range(first, 24))
    log.close()
    with pytest.raises(DamagedError, match="cannot be gone back to"):
        log_in(folder, places[2])


@pytest.mark.parametrize("damage", ["in the last group", "the last byte"])
def test_a_group_that_is_whole_and_altered_is_no_torn_one(damage: str, folder: Folder) -> None:
    name = in_several_segments(folder)[-1]
    change(folder, name, DAMAGES[damage])
    with pytest.raises(DamagedError, match=rf"{name} is damaged at byte \d+"):
        log_in(folder)


def test_who_went_on_behind_a_record_misses_it(folder: Folder) -> None:
    log = log_in(folder)
    log.append([1, 2])
    place = log.append([3])
    log.append([4])
    log.close()
    behind = place._replace(count=place.count + 1)
    assert read(folder, behind) == [4]
    for name in segments(folder)[-2:]:
        change(folder, name, cut_off(LAST_GROUP_BYTES * 2 - 4))
    with pytest.raises(DamagedError, match=r"go on behind record \d of segment \d, and has only"):
        log_in(folder, behind)


def test_the_format_before_is_refused_and_so_is_a_newer_one(folder: Folder) -> None:
    old = f"{UNDER}/000000000001.log"
    folder.write(old, b"anything")
    with pytest.raises(VersionError, match="an older version of Tailrace wrote"):
        log_in(folder)
    folder.delete(old)
    with pytest.raises(VersionError, match=r"has format 3 of journals; .* knows 2"):
        read_header(block_of(b'{"format": 3, "before": null}'), "x.log")
    with pytest.raises(DamagedError, match="does not begin as a segment"):
        read_header(block_of(b'["something else"]'), "x.log")
    ended = Ended(7, "000001-0", 3, 400, 5)
    assert read_header(header_of(ended), "x.log") == ended


# ---- writers that are killed ----


def test_a_writer_killed_at_any_byte_loses_nothing_that_was_logged(tmp_path: Path) -> None:
    first = LocalFolder(tmp_path / "first")
    log = log_in(first, segment_bytes=150)
    sizes = []  # of the last segment, when so many groups were logged
    for number in range(6):
        log.append([number])
        sizes.append((segments(first)[-1], (first.path / segments(first)[-1]).stat().st_size))
    log.close()
    written = {name: first.read(name) for name in segments(first)}
    assert len(written) > 1
    tried = 0
    for last, (name, data) in enumerate(written.items()):
        for at in range(len(data)):
            for unwritten in (0, 30):  # the system may have made room for more than it wrote
                second = Memory()
                second.files.update(list(written.items())[:last])
                lost = min(unwritten, len(data) - at)
                second.write(name, data[:at] + bytes(lost))
                if not lost or any(data[at : at + lost]):
                    confirmed = sum((one, size) <= (name, at) for one, size in sizes)
                    log = log_in(second)
                    assert logged(log) == list(range(confirmed))
                    log.append(["new"])
                    assert read(second) == [*range(confirmed), "new"]
                    log.close()
                    tried += 1
    assert tried > 600


def test_what_a_killed_writer_left_may_not_change_once_it_is_taken_over(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    log = log_in(folder)
    log.append([1, 2])
    log.append(["half written"])
    log.close()
    (name,) = segments(folder)
    change(folder, name, cut_off(5))
    log = log_in(folder)
    log.append([3])
    assert logged(log) == [1, 2, 3]
    change(folder, name, lambda data: data.__iadd__(b"more"))  # nobody reads that
    assert read(folder) == [1, 2, 3]
    change(folder, name, cut_off(len("half") + LAST_GROUP_BYTES * 2))
    with pytest.raises(DamagedError, match=r"has \d+ bytes; it had \d+ before"):
        read(folder)
    log.close()


@pytest.mark.parametrize("failing", ["fdatasync", "fsync", "write"])
def test_a_log_goes_on_behind_a_write_that_failed(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = LocalFolder(tmp_path)
    log = log_in(folder, segment_bytes=1)
    log.append([1])
    log.append([2])

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, full)
        for _ in range(2):
            with pytest.raises(CheckpointError, match="No space left on device"):
                log.append(["lost"])
    log.append([3])
    log.append([4])
    assert logged(log) == [1, 2, 3, 4]
    assert read(folder) == [1, 2, 3, 4]
    log.close()


# ---- several writers ----


def test_who_was_replaced_adds_nothing_and_replaces_nothing(folder: Folder) -> None:
    old = log_in(folder)
    old.append(["a"])
    new = log_in(folder)
    new.append(["b"])
    old.append(["too late"])
    new.append(["c"])
    old.append(["much too late"])
    assert logged(new) == ["a", "b", "c"]
    assert read(folder) == ["a", "b", "c"]
    for place, rest in [(new.before, "bc"), (new.end, "")]:
        assert read(folder, place) == [*rest]
    old.close()
    new.close()


def test_who_was_replaced_and_opens_the_log_late_hides_nothing_of_an_epoch(folder: Folder) -> None:
    new = log_in(folder)
    new.append(["a"])
    late = log_in(folder)
    new.append(["b"])
    counts = new.end  # an epoch says so
    new.append(["c"])
    late.append(["too late"])
    assert read(folder, counts) == ["c"]
    late.close()
    new.close()


def test_of_two_that_open_a_log_at_once_one_gives_up_at_least(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[JournalLog] = []
    begin = JournalLog._begin

    def beginning(self: JournalLog, *arguments: Any) -> Any:
        if not begun:
            begun.append(self)
            begun.append(log_in(folder))  # after it has looked what is there
        return begin(self, *arguments)

    monkeypatch.setattr(JournalLog, "_begin", beginning)
    with pytest.raises(CheckpointError, match="somebody else has begun to write the journal"):
        log_in(folder)
    other = begun[1]
    other.append([1])
    assert read(folder) == [1]
    other.close()


def test_segments_whose_writer_gave_up_at_once_hide_nothing(folder: Folder) -> None:
    log = log_in(folder)
    log.append([1])
    (twin,) = {f"{log._writer[:7]}ffffffff"}
    folder.write(f"{UNDER}/000000000001-{twin}.log", header_of(None))
    assert read(folder) == [1]
    log.close()
