"""The parts of the benchmark of on-line scheduling: the worst placement, silences, the load."""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path

import pytest

from online_parts.driver import worst_placement
from online_parts.marks import TICK_NS, Marks
from online_parts.steps import Stepped
from tailrace.apps import sol, word_count
from tailrace.graph.wiring import wire
from tailrace.topology import Topology


@pytest.mark.parametrize("topology", [sol.topology(), word_count.topology()])
def test_in_the_worst_placement_no_record_stays(topology: Topology) -> None:
    wiring = wire(topology.graph)
    placement = worst_placement(topology)
    for source, target in wiring.streams.values():
        senders = {placement[instance] for instance in source.instances}
        assert senders.isdisjoint({placement[instance] for instance in target.instances})


def test_the_longest_silence_is_found_over_several_writers(tmp_path: Path) -> None:
    first = Marks.new(tmp_path / "marks", 10.0)
    second = pickle.loads(pickle.dumps(first))
    begin_ns = first._begin_ns
    first("a record")
    second("another")
    seen = bytearray((tmp_path / "marks").read_bytes())
    assert 1 <= sum(seen) <= 2
    seen[:] = bytes(len(seen))
    seen[10] = seen[30] = seen[35] = 1
    (tmp_path / "marks").write_bytes(seen)
    to_ns = begin_ns + 40 * TICK_NS
    assert first.longest_silence_ms(begin_ns, to_ns) == pytest.approx(1.9)
    assert second.longest_silence_ms(begin_ns + 31 * TICK_NS, to_ns) == pytest.approx(0.4)


def test_the_load_steps_and_goes_on_where_it_was() -> None:
    pace = Stepped((1_000.0, 2_000.0), (2.0, 1.0))
    due = list(pace.offsets_ns(0, 1, 0))
    assert all(one <= other for one, other in pairwise(due))
    low = sum(at_ns < 2e9 for at_ns in due)
    assert low == pytest.approx(2_000, rel=0.1)
    assert len(due) - low == pytest.approx(2_000, rel=0.1)
    assert list(pace.offsets_ns(0, 1, 1_500)) == due[1_500:]
