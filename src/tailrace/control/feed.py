"""Rows pushed into a running job: what pusher and source instance say, and who has got what.

A pusher (a Spark task) has one partition of one batch, and speaks with one instance::

    pusher    BEGIN                     I have this partition of this batch
    instance  TAKEN, SAFE               so many of its rows I have already; so many are safe
    pusher    ROWS, ROWS ...            rows from this number on, as Arrow
    instance  HANDED, HANDED ...        so many of its rows are in the topology by now
    instance  SAFE, SAFE ...            so many are, and will not be asked for again
    pusher    DONE                      all of them are; forget me

The pusher goes only a few messages beyond HANDED, and is done when its last row is SAFE: with
checkpoints that is when an epoch that holds it is committed; without, as soon as it is in the
topology, and then nobody says HANDED. Rows are known by their number in the partition, so a task
that Spark runs again delivers none twice, be it after the first has failed or beside it. When the
job goes back to an epoch, the instance says AGAIN to who pushes: what it had sent is needed once
more, and so is its task. No I/O here.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar

KIND_FEED = 14
"""The frame kind of these messages."""

ALL = 2**63 - 1
"""As a number of rows: all there are, and they are done with."""

_HEAD = struct.Struct("<B3xIQQ")  # a multiple of 8, as Arrow likes it
P = TypeVar("P")


class Say(IntEnum):
    """What a message says."""

    BEGIN = 1
    ROWS = 2
    END = 3
    """To the instance: nothing comes any more. It answers HANDED."""
    TAKEN = 4
    HANDED = 5
    DONE = 6
    SAFE = 7
    AGAIN = 8


class Note(NamedTuple):
    """A message; behind that of ROWS stands an Arrow stream."""

    say: Say
    batch: int = 0
    partition: int = 0
    row: int = 0

    def pack(self) -> bytes:
        """As bytes."""
        return _HEAD.pack(self.say, self.partition, self.batch, self.row)


def unpack(payload: bytes | memoryview) -> tuple[Note, memoryview]:
    """A message, and what stands behind it.

    >>> unpack(Note(Say.ROWS, 7, 1, 2048).pack() + b"Arrow")[0].row
    2048
    """
    say, partition, batch, row = _HEAD.unpack_from(payload)
    return Note(Say(say), batch, partition, row), memoryview(payload)[_HEAD.size :]


@dataclass
class _Partition(Generic[P]):
    taken: int = 0
    handed: int = 0
    safe: int = 0
    pushers: list[P] = field(default_factory=list)


class GapError(ValueError):
    """Rows whose forerunners are not there: they were, before the job went back to an epoch."""


class Intake(Generic[P]):
    """What one instance has got of each partition of the newest batch.

    A batch begins only when the one before is done, so older ones need not be remembered: a task
    of theirs that still runs is told that it has nothing to do.
    """

    def __init__(self) -> None:
        self._batch = 0
        self._partitions: dict[int, _Partition[P]] = {}

    def restore(self, batch: int, rows: Mapping[int, int]) -> None:
        """Go on where another stood: with so many rows of each partition of a batch safe."""
        self._batch = batch
        self._partitions = {one: _Partition(safe, safe, safe) for one, safe in rows.items()}

    def begin(self, batch: int, partition: int, pusher: P) -> tuple[int, int]:
        """A pusher is there. Returns how many rows were taken before, and how many are safe."""
        if batch < self._batch:
            return ALL, ALL
        if batch > self._batch:
            self._batch, self._partitions = batch, {}
        found = self._partitions.setdefault(partition, _Partition())
        found.pushers.append(pusher)
        return found.taken, found.safe

    def take(self, batch: int, partition: int, first: int, rows: int, pusher: P) -> int:
        """Rows have come. Returns how many of them, from the front, were there before."""
        if batch < self._batch:
            return rows
        found = self._partitions.get(partition)
        if batch > self._batch or found is None:
            raise GapError(f"rows of partition {partition} of batch {batch}, which never began")
        if first > found.taken:
            raise GapError(
                f"partition {partition} of batch {batch} goes on with row {first};"
                f" row {found.taken} was to come"
            )
        known = min(found.taken - first, rows)
        found.taken += rows - known
        if not found.pushers:  # a second attempt, and the first is done
            found.pushers.append(pusher)
        return known

    def hand(self, batch: int, partition: int, rows: int) -> list[P]:
        """So many rows of a partition, of all there were, are in the topology. Who must know?

        Nobody, if that is not news.
        """
        found = self._partitions.get(partition)
        if batch != self._batch or found is None or rows <= found.handed:
            return []
        found.handed = rows
        return found.pushers

    def secure(self, batch: int, partition: int, rows: int) -> list[P]:
        """So many rows of a partition are safe. Who must know? Nobody, if that is not news."""
        found = self._partitions.get(partition)
        if batch != self._batch or found is None or rows <= found.safe:
            return []
        found.safe = rows
        found.handed = max(found.handed, rows)
        return found.pushers

    def pushers(self) -> list[P]:
        """All that wait for something."""
        return [one for found in self._partitions.values() for one in found.pushers]

    def done(self, batch: int, partition: int) -> None:
        """A pusher knows that all rows are safe; so do others of its partition."""
        if batch == self._batch and partition in self._partitions:
            self._partitions[partition].pushers.clear()
