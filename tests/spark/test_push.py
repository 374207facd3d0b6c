"""A pusher and a reader, joined without sockets and without Spark."""

from __future__ import annotations

import os
import socket
from collections import deque
from typing import Any

import pyarrow as pa
import pytest

from tailrace.control.feed import ALL, Note, Say, unpack
from tailrace.runtime.source import shares
from tailrace.spark.dataframe import DataFrameSource, PushedReader
from tailrace.spark.push import (
    MESSAGE_BYTES,
    MESSAGE_ROWS,
    WINDOW_MESSAGES,
    Line,
    Pusher,
    Target,
    Targets,
    messages,
)


class StuckError(Exception):
    """The pusher waits, and the reader is not polled."""


class Joined(Line):
    """What is said is received at once; whoever waits lets the reader be polled."""

    def __init__(self, reader: PushedReader, got: list[Any], polls: bool = True) -> None:
        self.reader = reader
        self.got = got
        self.polls = polls
        self.notes: deque[Note] = deque()
        self.said: list[Note] = []

    def say(self, note: Note, *behind: Any) -> None:
        self.said.append(note)
        payload = note.pack() + b"".join(map(bytes, behind))
        self.reader.receive(payload, lambda answer: self.notes.append(unpack(answer)[0]))

    def hear(self) -> Note:
        while not self.notes:
            records = self.reader.poll(100) if self.polls else None
            if not records:
                raise StuckError
            self.got += records
            self.reader.acknowledge(self.reader.position())
        return self.notes.popleft()


def numbers(first: int, end: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(range(first, end))})


def fresh() -> PushedReader:
    return PushedReader(None, lambda: 0)


def test_a_pusher_is_done_when_every_row_has_been_polled() -> None:
    reader = fresh()
    got: list[int] = []
    pusher = Pusher(Joined(reader, got), 0, 0)
    for first in range(0, 30_000, 10_000):
        pusher.push(numbers(first, first + 10_000))
    assert len(got) < 30_000
    pusher.finish()
    assert got == list(range(30_000))


def test_a_reader_forgets_pushers_that_are_done() -> None:
    reader = fresh()
    for partition in range(3):
        line = Joined(reader, [])
        pusher = Pusher(line, 0, partition)
        pusher.push(numbers(0, 10))
        pusher.finish()
        assert line.said[-1].say is Say.DONE
        assert reader._intake.secure(0, partition, 11) == []


def test_a_job_that_ends_with_the_last_row_does_not_fail_the_pusher() -> None:
    class Lost(Joined):
        def say(self, note: Note, *behind: Any) -> None:
            if note.say is Say.DONE:
                raise ConnectionError("the job is over")
            super().say(note, *behind)

    pusher = Pusher(Lost(fresh(), []), 0, 0)
    pusher.push(numbers(0, 10))
    pusher.finish()


def test_a_line_notices_a_silent_host() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with listener:
        target = Target(0, 1, listener.getsockname()[:2])
        line = Line(Targets((target,), 2, bytes(16)), target)
        dialer = socket.socket(fileno=os.dup(line._connection.fileno()))
        with dialer:
            assert dialer.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert dialer.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) > 0
        line.close()


def test_a_slow_reader_stops_the_pusher_after_a_window() -> None:
    line = Joined(fresh(), [], polls=False)
    pusher = Pusher(line, 0, 0)
    with pytest.raises(StuckError):
        pusher.push(numbers(0, 1_000_000))
    assert sum(note.say is Say.ROWS for note in line.said) == WINDOW_MESSAGES


def test_a_second_attempt_sends_only_what_is_missing() -> None:
    reader = fresh()
    got: list[int] = []
    first = Pusher(Joined(reader, got), 0, 0)
    first.push(numbers(0, 3000))  # and is killed
    line = Joined(reader, got)
    second = Pusher(line, 0, 0)
    second.push(numbers(0, 2000))
    second.push(numbers(2000, 5000))
    second.finish()
    assert got == list(range(5000))
    assert [note.row for note in line.said if note.say is Say.ROWS] == [2000, 3500]


def test_two_attempts_side_by_side_deliver_once() -> None:
    reader = fresh()
    got: list[int] = []
    pushers = [Pusher(Joined(reader, got), 0, 0) for _ in range(2)]
    for first in range(0, 5000, 1000):
        for pusher in pushers:
            pusher.push(numbers(first, first + 1000))
    for pusher in pushers:
        pusher.finish()
    assert got == list(range(5000))


def test_an_attempt_of_a_batch_that_is_done_has_nothing_to_do() -> None:
    reader = fresh()
    got: list[int] = []
    Pusher(Joined(reader, got), 7, 0)
    line = Joined(reader, got)
    late = Pusher(line, 6, 0)
    late.push(numbers(0, 100))
    late.finish()
    assert [note.say for note in line.said] == [Say.BEGIN]
    assert reader.poll(100) == []


def test_a_partition_that_has_shrunk_is_an_error() -> None:
    reader = fresh()
    Pusher(Joined(reader, []), 0, 4).push(numbers(0, 100))
    second = Pusher(Joined(reader, []), 0, 4)
    second.push(numbers(0, 60))
    with pytest.raises(ValueError, match=r"partition 4 has 60 rows; .* at least 100"):
        second.finish()


def test_the_end_comes_behind_the_rows() -> None:
    reader = fresh()
    line = Joined(reader, [])
    Pusher(line, 0, 0).push(numbers(0, 5))
    assert reader.due_ns() == 0
    line.say(Note(Say.END))
    assert reader.poll(3) == [0, 1, 2]
    assert reader.poll(3) == [3, 4]
    assert reader.due_ns() == 0
    assert reader.poll(3) is None


def test_a_reader_without_rows_waits_to_be_woken() -> None:
    reader = fresh()
    assert reader.poll(10) == []
    assert reader.due_ns() is None


def test_latency_counts_from_when_the_rows_came() -> None:
    times = iter([100, 200])
    reader = PushedReader(None, lambda: next(times))
    pusher = Pusher(Joined(reader, []), 0, 0)
    pusher.push(numbers(0, 2))
    pusher.push(numbers(2, 4))
    assert (reader.poll(1), reader.emitted_ns) == ([0], 100)
    assert (reader.poll(2), reader.emitted_ns) == ([1, 2], 100)
    assert (reader.poll(2), reader.emitted_ns) == ([3], 200)


def test_messages_are_bounded_by_rows_and_by_bytes() -> None:
    assert all(piece.num_rows <= MESSAGE_ROWS for piece in messages(numbers(0, 9_999)))
    assert sum(piece.num_rows for piece in messages(numbers(0, 9_999))) == 9_999
    texts = ["x" * 10] * 50 + ["x" * MESSAGE_BYTES * 2] + ["x" * MESSAGE_BYTES] * 3
    pieces = list(messages(pa.RecordBatch.from_pydict({"text": texts})))
    assert [text for piece in pieces for text in piece.column(0).to_pylist()] == texts
    assert all(piece.num_rows == 1 or piece.nbytes <= MESSAGE_BYTES for piece in pieces)
    assert list(messages(numbers(0, 0))) == []


def test_all_is_more_than_any_row() -> None:
    assert unpack(Note(Say.TAKEN, row=ALL).pack())[0].row == ALL


def test_only_dataframes_are_dataframes() -> None:
    with pytest.raises(TypeError, match="a Spark DataFrame was expected; this is list"):
        DataFrameSource([1, 2])


def test_nothing_is_acknowledged_only_because_it_was_polled() -> None:
    reader = fresh()
    line = Joined(reader, [])
    pusher = Pusher(line, 0, 0)
    pusher.push(numbers(0, 10))
    assert reader.poll(4) == [0, 1, 2, 3]
    position = reader.position()
    assert reader.poll(4) == [4, 5, 6, 7]
    assert not line.notes
    reader.acknowledge(position)
    assert [note.row for note in line.notes] == [4]


def test_rows_are_pushed_again_from_the_positions_on_whoever_has_the_splits_then() -> None:
    splits = shares(2)
    got: list[int] = []
    before = [PushedReader(None, lambda: 0, split) for split in splits]
    partitions = {0: numbers(0, 10), 1: numbers(10, 20), 3: numbers(20, 30)}
    for partition, rows in partitions.items():
        note = Note(Say.BEGIN, 5, partition).pack()
        reader = next(one for one in before if one.wants(note))
        assert reader is before[partition % 2]
        Pusher(Joined(reader, got), 5, partition).push(rows)
        got += reader.poll(7) or []
    positions = {split: reader.position() for split, reader in zip(splits, before, strict=True)}
    after = [PushedReader(None, lambda: 0, one, at) for one, at in positions.items()]
    for partition, rows in partitions.items():  # Spark runs the tasks again
        pusher = Pusher(Joined(after[partition % 2], got), 5, partition)
        pusher.push(rows)
        pusher.finish()
    assert sorted(got) == list(range(30))


class Epochs(Joined):
    """Under checkpoints: what was polled is handed on, and safe when somebody commits."""

    def hear(self) -> Note:
        while not self.notes:
            if not (records := self.reader.poll(100)):
                raise StuckError
            self.got += records
            self.reader.handed_on(self.reader.position())
        return self.notes.popleft()


def test_a_micro_batch_is_done_only_when_an_epoch_that_holds_it_is_committed() -> None:
    reader = fresh()
    got: list[int] = []
    line = Epochs(reader, got)
    pusher = Pusher(line, 3, 0)
    for first in range(0, 30_000, 10_000):
        pusher.push(numbers(first, first + 10_000))  # many windows, and no epoch meanwhile
    with pytest.raises(StuckError):
        pusher.finish()
    assert got == list(range(30_000))
    at = reader.position()
    reader.acknowledge((3, ((0, 29_999),)))
    with pytest.raises(StuckError):
        pusher.finish()
    reader.acknowledge(at)
    pusher.finish()
    assert line.said[-1].say is Say.DONE


def test_an_attempt_after_a_restored_position_pushes_what_the_epoch_does_not_hold() -> None:
    reader = fresh()
    first: list[int] = []
    Pusher(Epochs(reader, first), 3, 0).push(numbers(0, 10_000))
    reader.poll(100)
    at = reader.position()
    (_, ((_, held),)) = at
    later: list[int] = []
    line = Epochs(PushedReader(None, lambda: 0, position=at), later)
    again = Pusher(line, 3, 0)
    again.push(numbers(0, 10_000))
    with pytest.raises(StuckError):
        again.finish()
    assert later == list(range(held, 10_000))
    line.reader.acknowledge(line.reader.position())
    again.finish()


def test_a_micro_batch_that_the_epoch_holds_is_not_taken_again() -> None:
    """Its last epoch was committed, and the job died before Spark knew."""
    reader = PushedReader(None, lambda: 0, position=(3, ((0, 100), (1, 50))))
    got: list[int] = []
    for partition, rows in ((0, 100), (1, 50)):
        pusher = Pusher(Epochs(reader, got), 3, partition)
        pusher.push(numbers(0, rows))
        pusher.finish()
    assert got == []
    pusher = Pusher(Joined(reader, got), 4, 0)
    pusher.push(numbers(0, 7))
    pusher.finish()
    assert got == list(range(7))


def test_who_pushes_when_the_job_goes_back_is_told_to_push_again() -> None:
    before = fresh()
    waits, sends = (Epochs(before, []) for _ in range(2))
    waiting, sending = Pusher(waits, 0, 0), Pusher(sends, 0, 1)
    waiting.push(numbers(0, 10))
    sending.push(numbers(0, 10))
    before.close()
    with pytest.raises(ConnectionError, match="partition 0 of batch 0 must be pushed again"):
        waiting.finish()
    sends.notes.clear()  # it has not heard yet, and goes on pushing to the next reader
    after = PushedReader(None, lambda: 0, position=(0, ((1, 4),)))
    sends.reader = after
    sending.push(numbers(10, 20))
    with pytest.raises(ConnectionError, match="partition 1 of batch 0 must be pushed again"):
        sending.finish()
    assert after.poll(100) == []
