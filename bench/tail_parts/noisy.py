"""What a user sees: word count and chain at 10,000 records/s beside a noisy neighbour.

Three workers on two cores. A program that compresses data wants all of the first core, where one of
the three runs, too: with splits (word count), or copies of both operators (chain). The others have
the second core. `off` and `auto` take turns in one job; auto has looked and tried before. In the
quick run `rounds` are fewer than five.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tailrace as tr
from harness.arrivals import POISSON, pace_of
from tail_parts.disturbing import bind, compressing
from tail_parts.stage import (
    AUTO_S,
    Stage,
    chooser,
    of_histograms,
    settled,
    ship,
    slices_by_progress,
)
from tailrace.apps.word_count import WORDS_PER_SENTENCE, count, sentences
from tailrace.connectors.generate import Generate
from tailrace.runtime.sink import Sink

PER_S = 10_000.0
_PATIENCE_S = 30.0


class Counted(Sink):
    """How many came, and the sum of their numbers where they are numbers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, index: int, parallelism: int) -> None:
        self._path = self.folder / f"counted-{index}"
        self._count = 0

    def write(self, records: Iterator[Any]) -> None:
        self._count += sum(1 for _ in records)

    def close(self) -> None:
        self._path.write_text(str(self._count))


def relay(record: bytes) -> bytes:
    """What the operators of the chain do."""
    return record


def hundred_bytes(i: int) -> bytes:
    """A record."""
    return i.to_bytes(8, "little") + bytes(92)


def word_count(folder: Path) -> tuple[tr.Topology, tuple[int, ...], int]:
    """Source, counts and sink in worker 0, a split in each of the others; results per record."""
    topology = tr.Topology("word count")
    source = Generate(sentences(), pace=pace_of(POISSON, PER_S))
    words = topology.source(source, name="sentences").shuffle()
    split = words.flat_map(str.split, name="split", parallelism=2)
    split.key_by().scan(count, name="count", parallelism=1).sink(Counted(folder), name="sink")
    return topology, (0, 1, 2, 0), WORDS_PER_SENTENCE


def chain(folder: Path) -> tuple[tr.Topology, tuple[int, ...], int]:
    """Source and sink in worker 0, both operators in each of the others; results per record."""
    topology = tr.Topology("chain")
    source = Generate(hundred_bytes, pace=pace_of(POISSON, PER_S))
    stream = topology.source(source, name="records")
    for name in ("a", "b"):
        stream = stream.shuffle().map(relay, name=name, parallelism=2)
    stream.shuffle().sink(Counted(folder), name="sink", parallelism=1)
    return topology, (0, 1, 2, 1, 2, 0), 1


WORKLOADS: dict[str, Callable[[Path], tuple[tr.Topology, tuple[int, ...], int]]] = {
    "word_count": word_count,
    "chain": chain,
}
BESIDE = {2}
"""The worker that shares its core."""


def run(stage: Stage, quick: bool) -> dict[str, Any]:
    """The section's figures."""
    ship(__name__)
    rounds, slice_s, settle_s = (3, 0.4, 0.08) if quick else (20, 2.0, 0.3)
    found: dict[str, Any] = {"rounds": rounds, "lost": 0, "duplicated": 0}
    for name, make in WORKLOADS.items():
        stage.say(f"noisy neighbour: {name}")
        folder = stage.folder / f"noisy-{name}"
        folder.mkdir()
        topology, placement, results = make(folder)
        policy = chooser(quick)
        job = topology.start(stage.spark, placement=placement, progress_s=0.05, tail=policy)
        end: Callable[[], None] = lambda: None  # noqa: E731
        try:
            job.await_running(_PATIENCE_S)
            bind(job, BESIDE)
            end = compressing()
            chose = settled(job, policy, AUTO_S if quick else 60.0)
            turns = slices_by_progress(
                stage, job, ["off", "auto"], rounds=rounds, slice_s=slice_s, settle_s=settle_s
            )
            end()
            job.stop(timeout_s=_PATIENCE_S)
        finally:
            end()
            if job.is_active:
                job.stop(drain=False)
        one: dict[str, Any] = {way: of_histograms(each) for way, each in turns.items()}
        for percent in ("p99", "p99.9"):
            change = 100 * (one["auto"][percent] / one["off"][percent] - 1)
            one[f"{percent}_change_percent"] = round(change, 1)
        found[name] = {**one, "auto_chose": chose}
        came = sum(int(path.read_text()) for path in folder.glob("counted-*"))
        missing = results * sum(job.last_progress.emitted.values()) - came
        found["lost"] += max(missing, 0)
        found["duplicated"] += max(-missing, 0)
    return found


def table(found: dict[str, Any]) -> str:
    """As text."""
    lines = []
    for name in WORKLOADS:
        one = found[name]
        lines.append(f"{name} at {PER_S:,.0f}/s beside a noisy neighbour")
        lines += [
            f"  {way:8} p50 {one[way]['p50']:>6} ms  p99 {one[way]['p99']:>6}"
            f" {one[way]['p99_spread']}  p99.9 {one[way]['p99.9']:>6}  of {one[way]['records']}"
            for way in ("off", "auto")
        ]
        lines.append(f"  {one['auto_chose']}")
    return "\n".join(lines)
