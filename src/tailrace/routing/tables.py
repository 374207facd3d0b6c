"""Tables of keys: which instance gets which keys of an operator, apart from their slots. A value.

Keys that no table has go by their slots, as ever. A job is started with tables, or goes on with
them; they are saved as JSON or Parquet.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tailrace.routing.keytext import key_from_json, key_to_json
from tailrace.routing.slots import Routes

VERSION = 1


@dataclass(frozen=True)
class Table:
    """Of one operator."""

    parallelism: int
    """How many instances it is for."""
    keys: Mapping[Hashable, int] = field(default_factory=dict)
    """The instance of each key that is in it."""
    apart: tuple[int, ...] = ()
    """Instances that get no slots: each has a key that is as much as it can take."""

    def __post_init__(self) -> None:
        for key, instance in self.keys.items():
            if not 0 <= instance < self.parallelism:
                raise ValueError(
                    f"the table sends {key!r} to instance {instance}; it is for {self.parallelism}"
                )
        if not set(self.apart) < set(range(self.parallelism)):
            raise ValueError(
                f"slots stay away from instances {self.apart} of {self.parallelism}; somebody has"
                " to take them"
            )

    def routes(self, slots: Routes | None = None) -> Routes:
        """The table above slots, by default even ones; those of `apart` go to the others."""
        owners = (slots or Routes.even(self.parallelism)).owners
        if self.apart:
            others = [i for i in range(self.parallelism) if i not in self.apart]
            dealt = 0
            owners = array(owners.typecode, owners)
            for slot, owner in enumerate(owners):
                if owner in self.apart:
                    owners[slot] = others[dealt % len(others)]
                    dealt += 1
        return Routes(owners, self.keys)


@dataclass(frozen=True)
class Tables:
    """The tables of a topology, by operator.

    >>> tables = Tables({"tag": Table(2, {"java": 1, ("a", 7): 0})})
    >>> Tables.from_json(tables.to_json()) == tables
    True
    >>> tables["tag"].routes().owner("java")
    1
    """

    tables: Mapping[str, Table] = field(default_factory=dict)

    def __getitem__(self, operator: str) -> Table:
        return self.tables[operator]

    def __contains__(self, operator: object) -> bool:
        return operator in self.tables

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def __len__(self) -> int:
        """How many keys they have, all together."""
        return sum(len(table.keys) for table in self.tables.values())

    @property
    def size_bytes(self) -> int:
        """About what they take when they are sent to a worker."""
        from pickle import dumps

        return sum(len(dumps(dict(table.keys), 5)) for table in self.tables.values())

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values. Raises TypeError for a key that has no text; see `keytext`."""
        return {
            "version": VERSION,
            "tables": {
                operator: {
                    "parallelism": table.parallelism,
                    "apart": list(table.apart),
                    "keys": [[key_to_json(key), i] for key, i in table.keys.items()],
                }
                for operator, table in self.tables.items()
            },
        }

    @staticmethod
    def from_json(saved: Mapping[str, Any]) -> Tables:
        """The tables that `to_json` made them of. Raises ValueError for anything else."""
        if not isinstance(saved, Mapping) or saved.get("version") != VERSION:
            raise ValueError(
                f"tables are a JSON object of version {VERSION}, not {json.dumps(saved)[:80]}"
            )
        return Tables(
            {
                operator: Table(
                    one["parallelism"],
                    {key_from_json(key): instance for key, instance in one["keys"]},
                    tuple(one["apart"]),
                )
                for operator, one in saved["tables"].items()
            }
        )

    def to_arrow(self) -> Any:
        """An Arrow table: operator, key (as JSON text), instance; the rest in its metadata."""
        import pyarrow as pa

        rows = [
            (operator, json.dumps(key_to_json(key)), instance)
            for operator, table in self.tables.items()
            for key, instance in table.keys.items()
        ]
        about = {
            operator: {"parallelism": table.parallelism, "apart": list(table.apart)}
            for operator, table in self.tables.items()
        }
        columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
        schema = pa.schema(
            [("operator", pa.string()), ("key", pa.string()), ("instance", pa.int32())],
            {"tailrace": json.dumps({"version": VERSION, "tables": about})},
        )
        return pa.table(columns, schema=schema)

    @staticmethod
    def from_arrow(saved: Any) -> Tables:
        """The tables that `to_arrow` made it of. Raises ValueError for anything else."""
        about = (saved.schema.metadata or {}).get(b"tailrace")
        if about is None:
            raise ValueError(f"these are no tables of keys; the columns are {saved.column_names}")
        plain = json.loads(about)
        for one in plain["tables"].values():
            one["keys"] = []
        for row in zip(
            *(saved.column(name).to_pylist() for name in saved.column_names), strict=True
        ):
            operator, key, instance = row
            plain["tables"][operator]["keys"].append((json.loads(key), instance))
        return Tables.from_json(plain)

    def save(self, path: Path | str) -> None:
        """Write them to a file: Parquet if its name ends so, else JSON."""
        if str(path).endswith(".parquet"):
            from pyarrow import parquet

            parquet.write_table(self.to_arrow(), str(path))
        else:
            Path(path).write_text(json.dumps(self.to_json()) + "\n")

    @staticmethod
    def load(path: Path | str) -> Tables:
        """The tables that were saved in a file."""
        if str(path).endswith(".parquet"):
            from pyarrow import parquet

            return Tables.from_arrow(parquet.read_table(str(path)))
        return Tables.from_json(json.loads(Path(path).read_text()))
