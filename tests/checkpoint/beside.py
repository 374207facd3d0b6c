"""What workers have threads for, without the threads: coroutines and journals in virtual time."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from tailrace.connectors import journal
from tailrace.connectors.journal import Journaled, JournalReader
from tailrace.connectors.journal_log import JournalLog
from tailrace.runtime import async_map
from tailrace.runtime.source import Reader, Source
from tests.checkpoint.world import Ledger


class Coroutines:
    """In the place of an asyncio loop: each coroutine takes as long as chance has it."""

    def __init__(self, logic: Any, name: str, done: Callable[..., None]) -> None:
        self.function = logic.function
        self.done = done
        self.waiting: list[tuple[int, Any]] = []
        ALL.append(self)

    def start(self, batch: list[tuple[int, Any]]) -> None:
        self.waiting += batch

    def close(self) -> None:
        self.waiting.clear()

    def work(self, chance: random.Random) -> bool:
        if not self.waiting or chance.random() < 0.5:
            return bool(self.waiting)
        number, record = self.waiting.pop(chance.randrange(len(self.waiting)))
        try:
            self.function(record).send(None)
        except StopIteration as ended:
            self.done((number, ended.value, None))
        return True


class Writer:
    """In the place of a journal's thread."""

    def __init__(self, target: Callable[[], None], name: str, daemon: bool) -> None:
        self.reader: JournalReader = target.__self__  # type: ignore[attr-defined]
        self.more = True

    def start(self) -> None:
        ALL.append(self)

    def join(self) -> None:
        while self.more:
            self.more = self.reader._work()
        ALL.remove(self)

    def work(self, chance: random.Random) -> bool:
        reader = self.reader
        waits = reader._come or reader._delete_before > reader._deleted
        if waits and self.more and chance.random() < 0.5:
            self.more = reader._work()
        return bool(waits)


ALL: list[Coroutines | Writer] = []


class Once(Source, Reader):
    """Gives each of so many numbers to whoever asks first, and never again."""

    def __init__(self, ledger: Ledger, number: int) -> None:
        self.ledger = ledger
        self.number = number

    def __deepcopy__(self, memo: Any) -> Once:
        return self

    def open(self, split: Any, clock_ns: Any, position: Any = None) -> Reader:
        return self

    def poll(self, most: int) -> list[Any] | None:
        given = next(self.ledger.offered)
        return [given] if given < self.number else None


def logged_in(ledger: Ledger, count: int) -> Source:
    """So many numbers, behind a journal in the ledger's folder."""
    return Journaled(Once(ledger, count)).bind("memory")


@contextmanager
def in_one_thread(chance: random.Random, ledger: Ledger) -> Iterator[Callable[[], bool]]:
    """No threads meanwhile: what is given is called for them to work on, now and then."""
    append = JournalLog.append

    def noting(self: JournalLog, records: list[Any]) -> Any:
        place = append(self, records)
        if all(self._writer >= one.writer for one in self._there()):
            ledger.logged += records
        return place

    def work() -> bool:
        return sum(one.work(chance) for one in ALL) > 0  # each of them

    with (
        patch.object(async_map, "_Loop", Coroutines),
        patch.object(threading, "Thread", Writer),
        patch.object(journal, "folder_at", lambda url: ledger.journal),
        patch.object(JournalLog, "append", noting),
        patch.object(os, "fsync", lambda descriptor: None),  # no machine fails here
    ):
        try:
            yield work
        finally:
            while ALL:
                one = ALL[-1]
                if isinstance(one, Writer):
                    one.more = False
                    one.reader.close()  # which takes it out
                else:
                    ALL.pop()
