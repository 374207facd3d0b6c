"""Splits: read part of a source, go on elsewhere with other parallelism, and nothing is missed."""

from __future__ import annotations

import json
import pickle
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tailrace as tr
from tailrace import sources
from tailrace.runtime.reading import SourceStep
from tailrace.runtime.source import DONE, START, Source, Split, shares
from tailrace.runtime.state import FORGOTTEN
from tailrace.testing import VirtualClock, collect, run
from tests.connectors.reading import serve

RECORDS = 60


def small_files(folder: Path, names: str, line: Callable[[int], str]) -> None:
    for i, name in enumerate(names):
        part = range(RECORDS)[i :: len(names)]
        (folder / name).write_text("".join(line(n) + "\n" for n in part))


def lines(folder: Path, **options: Any) -> Source:
    small_files(folder, "abc", str)
    return sources.lines(folder, **options)


def ndjson(folder: Path) -> Source:
    small_files(folder, "ab", json.dumps)
    return sources.ndjson(folder, split_bytes=7)


def parquet(folder: Path) -> Source:
    for i, name in enumerate("ab"):
        table = pa.table({"n": range(RECORDS)[i::2]})
        pq.write_table(table, folder / name, row_group_size=4)
    return sources.parquet(folder, batch_rows=3)


MADE: dict[str, Callable[[Path], Source]] = {
    "items": lambda _: sources.items(range(RECORDS)),
    "rate": lambda _: sources.rate(1000, count=RECORDS),
    "poisson": lambda _: sources.poisson(1000, count=RECORDS),
    "bursts": lambda _: sources.bursts(7, 0.1, count=RECORDS, shares=5),
    "unpaced": lambda _: sources.unpaced(count=RECORDS, shares=3),
    "lines": lines,
    "ranges of lines": lambda folder: lines(folder, split_bytes=5),
    "followed": lambda folder: lines(folder, follow=True),
    "ndjson": ndjson,
    "parquet": parquet,
}


def take(steps: Iterable[SourceStep], clock: VirtualClock, most: int) -> list[int]:
    """Up to so many records of all instances, in turn; time passes when they have none."""
    found: list[int] = []
    steps = list(steps)
    quiet = 0
    while steps and len(found) < most and quiet < 50:  # who follows files has no end
        before = len(found)
        for step in list(steps):
            some = step.poll(min(3, most - len(found)))
            if some is None:
                steps.remove(step)
            found += map(int, some or ())
            if len(found) == most:
                break
        quiet = 0 if len(found) > before else quiet + 1
        dues = [due for step in steps if (due := step.due_ns()) is not None]
        clock.now_ns = max(clock.now_ns, min(dues, default=0))
    return found


def together(steps: Iterable[SourceStep]) -> dict[Split, Any]:
    positions: dict[Split, Any] = {}
    for step in steps:
        assert not positions.keys() & step.positions().keys(), "a split is at two instances"
        positions |= step.positions()
    found: dict[Split, Any] = pickle.loads(pickle.dumps(positions))
    return found


def dealt(source: Source, positions: dict[Split, Any], n: int, clock: VirtualClock) -> list[Any]:
    homes = [{s: p for s, p in positions.items() if s.home(n) == i} for i in range(n)]
    return [serve(source, i, n, clock, home) for i, home in enumerate(homes)]


@pytest.mark.parametrize("name", MADE)
@given(taken=st.integers(0, RECORDS + 1), before=st.integers(1, 4), after=st.integers(1, 4))
def test_positions_outlive_a_change_of_parallelism(
    name: str, taken: int, before: int, after: int
) -> None:
    with TemporaryDirectory() as folder:
        source = MADE[name](Path(folder))
        assert source.rewinds
        clock = VirtualClock()
        steps = [serve(source, index, before, clock) for index in range(before)]
        first = take(steps, clock, taken)
        positions = together(steps)
        for step in steps:
            step.close()
        steps = dealt(source, positions, after, clock)
        rest = take(steps, clock, RECORDS + 1)
        for step in steps:
            step.close()
    assert Counter(first + rest) == Counter(range(RECORDS))
    assert len(first) == min(taken, RECORDS)


@pytest.mark.parametrize("name", MADE)
@given(seed=st.integers(0, 1 << 20), n=st.integers(1, 3))
def test_splits_move_between_instances_that_run(name: str, seed: int, n: int) -> None:
    chance = random.Random(seed)  # homes follow from paths, which are new each time
    with TemporaryDirectory() as folder:
        source = MADE[name](Path(folder))
        clock = VirtualClock()
        steps = [serve(source, index, n, clock) for index in range(n)]
        seen: list[int] = []
        while len(seen) < RECORDS:
            seen += take(steps, clock, chance.randint(1, 9))
            giver, taker = chance.choice(steps), chance.choice(steps)
            there = list(giver.positions())
            taker.put_in(giver.take_out(chance.sample(there, chance.randint(0, len(there)))))
        for step in steps:
            step.close()
    assert Counter(seen) == Counter(range(RECORDS))


@given(st.integers(1, 9), st.integers(1, 9), st.text(max_size=3))
def test_every_split_has_one_home_and_shares_are_spread_evenly(n: int, of: int, name: str) -> None:
    homes = Counter(split.home(n) for split in shares(of, name))
    assert max(homes.values()) - min(homes[i] for i in range(n)) <= 1
    assert [split.home(n) for split in shares(n)] == list(range(n))


def test_new_files_go_to_their_homes_after_a_change_of_parallelism(tmp_path: Path) -> None:
    source = lines(tmp_path, follow=True)
    clock = VirtualClock()
    steps = [serve(source, 0, 1, clock)]
    seen = take(steps, clock, 10)
    new = serve(source, 1, 2, clock, {})
    steps[0].rescale(0, 2)
    new.put_in(steps[0].take_out([one for one in steps[0].positions() if one.home(2) == 1]))
    steps.append(new)
    for number in range(RECORDS, RECORDS + 20):
        (tmp_path / f"new {number}").write_text(f"{number}\n")
    seen += take(steps, clock, RECORDS + 21)
    assert Counter(seen) == Counter(range(RECORDS + 20))
    for index, step in enumerate(steps):
        assert {split.home(2) for split in step.positions()} == {index}
        step.close()


def test_what_is_not_there_cannot_be_taken_out_nor_put_in_twice() -> None:
    step = serve(sources.items([1, 2]), 0, 2)
    assert step.take_out([Split("", 1, 2)]) == []
    with pytest.raises(ValueError, match=r"the splits \['share 1 of 2'\] are here already"):
        step.put_in([(Split("", 0, 2), 0)])


def test_a_split_at_its_end_stays_at_its_end() -> None:
    step = serve(sources.items([1]))
    assert step.poll(5) == [1]
    assert step.poll(5) is None
    assert step.positions() == {Split("", 0, 1): DONE}
    assert serve(sources.items([1]), positions=step.positions()).poll(5) is None


def test_a_cut_has_the_positions_of_its_moment_and_safe_are_the_committed_ones() -> None:
    step = serve(sources.unpaced(count=4, shares=3))
    assert step.safe is None
    step.poll(1)
    cut = step.cut()
    there = step.positions()
    step.poll(1)
    assert dict(cut) == there != step.positions()
    assert step.safe is None
    list(step.committed())
    assert step.safe == there


def test_instances_without_splits_end_at_once() -> None:
    topology = tr.Topology()
    seen = collect(topology.source(sources.unpaced(count=10, shares=2), parallelism=5))
    assert run(topology, workers=2).ended
    assert sorted(seen) == list(range(10))


def test_all_splits_have_their_turn() -> None:
    step = serve(sources.unpaced(shares=3))
    assert [step.poll(2) for _ in range(4)] == [[0, 3], [1, 4], [2, 5], [6, 9]]
    step.stop()
    assert step.poll(2) is None


def test_sources_of_lines_over_the_network_do_not_rewind() -> None:
    assert not sources.socket("there", 1).rewinds
    assert not sources.listen(1).rewinds
    assert not tr.Source().rewinds


class Quiet(tr.Source, tr.Reader):
    """A reader as a user may write it: it knows no time and has no descriptor."""

    def __init__(self, polls: list[list[int] | None]) -> None:
        self.polls = polls

    def open(self, *_: Any) -> tr.Reader:
        return self

    def poll(self, most: int) -> list[int] | None:
        return self.polls.pop(0)


def test_a_reader_without_times_is_asked_after_pauses_that_grow() -> None:
    clock = VirtualClock(1_000)
    step = serve(Quiet([[], [], [1], [], *([[]] * 20)]), clock_ns=clock)
    assert step.due_ns() == 0, "it was never asked"
    dues = []
    for _ in range(24):
        step.poll(1)
        dues.append(max(0, (step.due_ns() or 0) - clock.now_ns))
    assert dues[:6] == [100_000, 200_000, 0, 100_000, 200_000, 400_000]
    assert dues[-1] == 5_000_000


def test_a_reader_without_times_does_not_stop_the_test_kit() -> None:
    topology = tr.Topology()
    seen = collect(topology.source(Quiet([[], [1], [], [], [2], None])))
    report = run(topology)
    assert seen == [1, 2]
    assert report.ended
    assert report.virtual_s == pytest.approx(400e-6)


def test_a_reader_that_was_not_due_yet_is_not_made_to_pause() -> None:
    clock = VirtualClock()
    step = serve(sources.rate(1000), clock_ns=clock)
    step.poll(1)
    for _ in range(20):
        assert step.poll(1) == []
    clock.now_ns = 5_000_000
    assert step.due_ns() == 1_000_000


def test_a_list_that_a_reader_keeps_is_its_own_risk_but_any_sequence_will_do() -> None:
    step = serve(Quiet([(1, 2)]))  # type: ignore[list-item]
    records = step.poll(5)
    assert records == [1, 2]
    assert type(records) is list


class Acknowledged(Quiet):
    def __init__(self, polls: list[list[int] | None]) -> None:
        super().__init__(polls)
        self.at = 0
        self.safe: list[int] = []
        self.handed: list[int] = []

    def poll(self, most: int) -> list[int] | None:
        self.at += 1
        return super().poll(most)

    def position(self) -> int:
        return self.at

    def acknowledge(self, position: int) -> None:
        self.safe.append(position)

    def handed_on(self, position: int) -> None:
        self.handed.append(position)


def test_records_are_acknowledged_when_they_were_handed_on_and_not_before() -> None:
    source = Acknowledged([[1], [2]])
    step = serve(source)
    records = step.poll(1)
    assert source.safe == []
    assert records is not None
    step.put(records)
    assert source.safe == [1]


def read_one(step: SourceStep) -> None:
    records = step.poll(1)
    assert records is not None
    step.put(records)


def commit(step: SourceStep) -> None:
    deque(step.committed(), maxlen=0)


def test_under_checkpoints_records_are_acknowledged_when_their_epoch_is_committed() -> None:
    source = Acknowledged([[1], [2], [3], [4]])
    step = serve(source, checkpoints=True)
    step.cut()
    commit(step)
    read_one(step)
    assert dict(step.cut()) == step.positions() == {Split("", 0, 1): 1}
    read_one(step)
    assert source.safe == [0]
    assert source.handed == [1, 2]
    commit(step)
    assert source.safe == [0, 1]
    step.cut()
    read_one(step)
    commit(step)
    assert source.safe == [0, 1, 2]


class Closing(Acknowledged):
    def __init__(self, polls: list[list[int] | None]) -> None:
        super().__init__(polls)
        self.closed: list[int] = []

    def close(self) -> None:
        self.closed.append(self.at)


def test_a_reader_at_its_end_is_closed_when_an_epoch_holds_that() -> None:
    source = Closing([[1], None])
    step = serve(source, checkpoints=True)
    read_one(step)
    step.cut()
    assert step.poll(1) is None
    commit(step)
    assert (source.safe, source.closed) == ([1], [])
    assert dict(step.cut()) == {Split("", 0, 1): DONE}
    commit(step)
    assert (source.safe, source.closed) == ([1, 2], [2])
    step.close()
    assert source.closed == [2]


class Returning(Closing):
    """Can go back without being opened anew, but not before its third record."""

    def go_back(self, position: int | None) -> bool:
        if position is None or position < 3:
            return False
        self.at = position
        return True


@pytest.mark.parametrize("read", [2, 3])
def test_who_takes_over_gets_the_readers_that_can_go_back(read: int) -> None:
    source = Returning([[n] for n in range(9)])
    step = serve(source, checkpoints=True)
    for _ in range(read):
        read_one(step)
    step.cut()
    commit(step)
    read_one(step)
    step.retire()
    assert source.closed == []
    after = serve(source, positions=step.safe, kept=step.kept)
    assert source.closed == ([] if read == 3 else [3])
    assert source.at == 3
    after.close()
    step.close()
    assert len(source.closed) == (1 if read == 3 else 2)


@pytest.mark.parametrize("name", MADE)
@given(seed=st.integers(0, 1 << 20), n=st.integers(1, 3))
def test_after_going_back_to_an_epoch_what_it_does_not_hold_comes_again(
    name: str, seed: int, n: int
) -> None:
    chance = random.Random(seed)
    with TemporaryDirectory() as folder:
        source = MADE[name](Path(folder))
        clock = VirtualClock()
        steps = [serve(source, index, n, clock, checkpoints=True) for index in range(n)]
        held, seen, counts = list[int](), list[int](), dict[Split, Any]()
        while len(held) < RECORDS:
            seen += take(steps, clock, chance.randint(1, 15))
            if chance.random() < 0.5:
                cuts = [step.cut(full=not counts) for step in steps]
                changed: dict[Any, Any] = {at[0]: at[1] for cut in cuts for at in cut}
                counts = {
                    split: at for split, at in {**counts, **changed}.items() if at is not FORGOTTEN
                }
                held = seen.copy()
                for step in steps:
                    commit(step)
            if chance.random() < 0.3 and counts:
                dead = chance.randrange(n)
                for index, step in enumerate(steps):
                    if chance.random() < 0.5:
                        step.cut()  # which will never count
                    step.retire()
                    safe = step.safe
                    if index == dead:
                        safe = {split: at for split, at in counts.items() if split.home(n) == dead}
                    steps[index] = serve(source, index, n, clock, safe, checkpoints=True)
                seen = held.copy()
        for step in steps:
            step.close()
    assert Counter(held) == Counter(range(RECORDS))


def test_an_epoch_costs_what_was_polled_since_the_last_however_many_splits_there_are() -> None:
    waiting = {Split(f"{number}"): START for number in range(2000)}
    ended = {Split(f"{number}"): DONE for number in range(2000, 4000)}
    step = serve(tr.sources.items([1]), positions={**waiting, **ended}, checkpoints=True)
    assert dict(step.cut(full=True)) == step.positions()
    commit(step)
    assert list(step.cut()) == []
    commit(step)
    step.poll(1)
    changed = dict(step.cut())
    assert 0 < len(changed) < 10
    commit(step)
    assert step.safe == step.positions()
    step.take_out([Split("3000")])
    assert dict(step.cut()) == {Split("3000"): FORGOTTEN}
    assert sorted(step.keys_at_cut()) == sorted(step.positions())  # type: ignore[type-var]
    assert dict(step.again([Split("3000"), Split("3001")])) == {Split("3001"): DONE}
    commit(step)
    assert step.safe == step.positions()
    step.close()
