"""Workers on cores: set, refused, given back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tailrace.control.binding import Binding, settle
from tailrace.transport.ring import Ring


def test_a_binding_holds_until_it_is_released() -> None:
    before = os.sched_getaffinity(0)
    core = max(before)
    binding = Binding(core)
    assert os.sched_getaffinity(0) == {core}
    binding.release()
    assert os.sched_getaffinity(0) == before


def test_a_core_that_it_may_not_use_is_refused_and_nothing_changes() -> None:
    before = os.sched_getaffinity(0)
    with pytest.raises(RuntimeError, match="to core 4000; it may use"):
        Binding(4000)
    assert os.sched_getaffinity(0) == before


def test_the_ring_goes_to_the_node_of_the_core_where_there_are_several(tmp_path: Path) -> None:
    with Ring.create(1 << 16) as ring:
        for path in ("node/node0", "cpu/cpu0/node0", "cpu/cpu1/node0", "cpu/cpu7"):
            (tmp_path / path).mkdir(parents=True)
        assert settle(ring, 1, tmp_path) is None  # one node: nothing to choose
        (tmp_path / "node/node1").mkdir()
        assert settle(ring, 1, tmp_path) == 0
        assert settle(ring, 7, tmp_path) is None  # the system does not say where it is
