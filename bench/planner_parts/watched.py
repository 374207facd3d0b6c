"""A source that notes how much it has emitted by when, and leaves that in a folder."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tailrace.graph.model import Graph
from tailrace.runtime.reading import SourceLogic
from tailrace.runtime.source import Reader, Source, Split

_EVERY_NS = 5_000_000


class _Watched(Reader):
    def __init__(self, reader: Reader, clock_ns: Callable[[], int], path: Path | None) -> None:
        self._reader = reader
        self._clock_ns = clock_ns
        self._path = path
        self._emitted = 0
        self._next_ns = 0
        self._notes: list[tuple[int, int]] = []

    def poll(self, most: int) -> list[Any] | None:
        now_ns = self._clock_ns()
        if now_ns >= self._next_ns:
            self._next_ns = now_ns + _EVERY_NS
            self._notes.append((now_ns, self._emitted))
        records = self._reader.poll(most)
        self._emitted += len(records or ())
        return records

    def close(self) -> None:
        self._reader.close()
        if self._path is not None:
            self._path.write_text(json.dumps(self._notes))


@dataclass(frozen=True)
class Watched(Source):
    """Another source, unpaced."""

    source: Source
    name: str
    folder: str | None = None

    def splits(self, parallelism: int) -> Sequence[Split]:
        return self.source.splits(parallelism)

    def open(self, split: Split, clock_ns: Callable[[], int], position: Any = None) -> Reader:
        path = Path(self.folder) / f"{self.name}-{split.index}.json" if self.folder else None
        reader = self.source.open(split, clock_ns, position)
        return _Watched(reader, clock_ns, path)


def watched(graph: Graph, folder: Path | None) -> Graph:
    """The graph with its sources unpaced and, with a folder, watched."""
    operators = []
    for operator in graph.operators:
        if isinstance(operator.logic, SourceLogic):
            source = operator.logic.source.unpaced()
            inner = source.source if isinstance(source, Watched) else source
            where = str(folder) if folder else None
            logic = SourceLogic(Watched(inner, operator.name, where))
            operator = replace(operator, logic=logic)
        operators.append(operator)
    return replace(graph, operators=tuple(operators))


def rate_in(folder: Path, begin_ns: int, end_ns: int) -> float:
    """Records per second that all sources emitted together between two times."""
    emitted = 0
    for path in folder.glob("*.json"):
        notes = json.loads(path.read_text())

        def by(at_ns: int, notes: list[tuple[int, int]] = notes) -> int:
            return max((count for noted_ns, count in notes if noted_ns <= at_ns), default=0)

        emitted += by(end_ns) - by(begin_ns)
    return emitted * 1e9 / (end_ns - begin_ns)
