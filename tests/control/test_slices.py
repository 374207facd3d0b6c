"""What a worker says to the system about its turns."""

from __future__ import annotations

import os
import threading

import pytest

from tailrace.control.slices import SHORT_NS, USUAL_NS, set_slice, slice_ns

said = pytest.mark.skipif(not slice_ns(), reason="this kernel knows no slices of threads")


@said
def test_a_thread_has_short_turns_until_it_says_otherwise() -> None:
    usual_ns = slice_ns()
    assert set_slice(SHORT_NS)
    assert slice_ns() == SHORT_NS
    assert set_slice(USUAL_NS)
    assert slice_ns() == usual_ns


@said
def test_a_thread_that_stands_back_leaves_others_as_they_are() -> None:
    usual_ns, found = slice_ns(), []

    def stand_back() -> None:
        set_slice(USUAL_NS, nice=10)
        mine = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        found.append((mine, slice_ns()))

    set_slice(SHORT_NS)
    try:
        thread = threading.Thread(target=stand_back)
        thread.start()
        thread.join()
        assert found == [(10, usual_ns)]
        assert slice_ns() == SHORT_NS
        assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == 0
    finally:
        set_slice(USUAL_NS)


def test_a_machine_that_is_not_known_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "abacus")
    assert not set_slice(SHORT_NS)
    assert slice_ns() is None
