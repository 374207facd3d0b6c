"""A sink of your own that writes every record exactly once, into SQLite.

Rows of an epoch wait in a table of their own until the epoch counts. Run it: a life ends between
`prepare` and `commit`, another goes on from there.

python examples/exactly_once_sink.py
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tailrace as tr
from tailrace.runtime.sink import Writing

MADE = """
create table if not exists results (word, count);
create table if not exists prepared (writer, epoch integer, word, count);
"""


class IntoSqlite(tr.Sink):
    guarantee = "exactly once"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[tuple[str, int]] = []

    def run(self, *statements: tuple[str, Any]) -> None:
        """All of them, or none: SQLite answers when they are on disk."""
        with closing(sqlite3.connect(self.path, timeout=60)) as database, database:
            for statement, values in statements:
                database.executemany(statement, values)

    def begin(self, writing: Writing) -> None:
        with closing(sqlite3.connect(self.path, timeout=60)) as database:
            database.executescript(MADE)
        self.writer = f"{writing.job} {writing.operator} {writing.index}"
        drop = "delete from prepared where writer = ? and epoch > ?"  # they will be done again
        self.run((drop, [(self.writer, writing.epoch)]))

    def write(self, records: Iterator[tuple[str, int]]) -> None:
        self.rows.extend(records)

    def prepare(self, epoch: int) -> tuple[str, int]:
        rows, self.rows = self.rows, []
        values = [(self.writer, epoch, *row) for row in rows]
        self.run(("insert into prepared values (?, ?, ?, ?)", values))
        return self.writer, epoch

    def commit(self, handle: tuple[str, int]) -> None:
        # The second time there is nothing left to do.
        mine = "from prepared where writer = ? and epoch = ?"
        move = f"insert into results select word, count {mine}"
        self.run((move, [handle]), (f"delete {mine}", [handle]))

    def abort(self, handle: tuple[str, int]) -> None:
        self.run(("delete from prepared where writer = ? and epoch = ?", [handle]))

    def roll_back(self) -> None:
        self.rows.clear()


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        path = Path(folder) / "results.db"
        first = IntoSqlite(path)
        first.begin(Writing("job", "to sqlite", 0, 1, epoch=0))
        first.write(iter([("lamp", 1), ("desk", 2)]))
        handle = first.prepare(1)
        first.write(iter([("lamp", 3)]))
        # Epoch 1 counts. Then the worker is killed, before it commits, and another goes on.
        second = IntoSqlite(path)
        second.begin(Writing("job", "to sqlite", 0, 1, epoch=1))
        second.commit(handle)
        second.commit(handle)
        second.write(iter([("lamp", 3)]))
        second.commit(second.prepare(2))
        with closing(sqlite3.connect(path)) as database:
            print(*database.execute("select * from results"))
