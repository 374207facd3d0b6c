"""The transport's costs: measured by two real workers, kept in a file."""

from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from tailrace.plan.model.machine import Cost, Machine, cluster
from tailrace.planner import calibrate as module
from tailrace.planner import pair
from tailrace.planner.calibrate import cache_path, calibrate, this_machine
from tailrace.planner.codec import CodecTimes
from tailrace.planner.detect import detect
from tailrace.planner.pair import ACROSS, ALONE, FUSED, LOCAL, Trial, _middle, run_pair


@pytest.mark.parametrize("by_tcp", [False, True])
def test_both_workers_of_a_pair_have_costs(by_tcp: bool) -> None:
    trials = [Trial(distance, 64, 16) for distance in (ALONE, FUSED, LOCAL, ACROSS, ACROSS)]
    times = run_pair(trials, yardstick_ns=300.0, by_tcp=by_tcp)
    assert all(sender > 0 for sender, _ in times)
    assert [receiver > 0 for _, receiver in times] == [False, False, False, True, True]


def test_costs_of_a_pair_are_at_the_yardsticks_speed() -> None:
    trials = [Trial(ACROSS, 64, 16)]
    ((sent_ns, received_ns),) = run_pair(trials, yardstick_ns=300.0)
    ((slow_sent_ns, slow_received_ns),) = run_pair(trials, yardstick_ns=30_000.0)
    assert slow_sent_ns > 10 * sent_ns
    assert slow_received_ns > 10 * received_ns


def test_a_pair_that_fails_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair, "_TIMEOUT_S", 20.0)
    with pytest.raises(RuntimeError, match="calibration failed"):
        run_pair([Trial(ACROSS, 0, 16)], yardstick_ns=300.0)


def test_costs_of_every_boundary() -> None:
    machine = calibrate(detect(), link_bits_per_s=8e9)
    assert machine.nodes == detect().nodes
    assert machine.link_bytes_per_s == 1e9
    assert machine.yardstick_ns > 0
    assert machine.same_place.encode is None
    for crossing in (machine.same_socket, machine.other_node):
        assert crossing.encode is not None
        assert crossing.decode is not None
        assert crossing.encode.record_ns > 0
        assert crossing.send_ns(100) > machine.same_place.send_ns(100)
        assert crossing.receive_ns(2000) > crossing.receive_ns(20)


class Counted:
    """Stands for the calibration."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, machine: Machine) -> Machine:
        self.calls += 1
        return replace(machine, link_bytes_per_s=float(self.calls), yardstick_ns=300.0)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted = Counted()
    monkeypatch.setattr(module, "calibrate", counted)
    return counted


def test_the_file_of_an_earlier_call_is_used(tmp_path: Path, counted: Counted) -> None:
    path = tmp_path / "deep" / "machine.json"
    first = this_machine(path)
    assert this_machine(path) == first == Machine.load(path)
    assert counted.calls == 1


def test_the_file_is_whole_or_not_there(
    tmp_path: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "machine.json"
    first = this_machine(path)

    def half(self: Machine, to: Path | str) -> None:
        Path(to).write_text("{")
        raise OSError("no space left")

    monkeypatch.setattr(Machine, "save", half)
    with pytest.raises(OSError, match="no space"):
        this_machine(path, fresh=True)
    assert Machine.load(path) == first


def test_a_trial_that_was_never_timed_says_so() -> None:
    with pytest.raises(RuntimeError, match="less busy"):
        _middle(Trial(ACROSS, 32, 16), [])


def test_it_is_measured_again_when_asked_for(tmp_path: Path, counted: Counted) -> None:
    path = tmp_path / "machine.json"
    this_machine(path)
    assert this_machine(path, fresh=True).link_bytes_per_s == 2
    assert counted.calls == 2


def test_it_is_measured_again_on_other_hardware(tmp_path: Path, counted: Counted) -> None:
    path = tmp_path / "machine.json"
    replace(cluster(1, sockets=64), yardstick_ns=300.0).save(path)
    assert this_machine(path).nodes == detect().nodes
    assert counted.calls == 1


def test_it_is_measured_again_when_the_file_does_not_say_how_fast_cores_were(
    tmp_path: Path, counted: Counted
) -> None:
    path = tmp_path / "machine.json"
    detect().save(path)
    assert this_machine(path).yardstick_ns == 300
    assert counted.calls == 1


def test_the_cache_is_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: Counted
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    this_machine()
    assert cache_path().parent == tmp_path / "tailrace"
    assert cache_path().exists()


def test_sockets_that_cannot_be_measured_are_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    two = cluster(1, sockets=2, cores=1)
    monkeypatch.setattr(module, "run_pair", lambda trials, **_: [(1000.0, 2000.0)] * len(trials))
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})
    machine = calibrate(two)
    near, far = machine.same_socket, machine.other_socket[0]
    assert far.receiver.ns(100) == pytest.approx(1.5 * near.receiver.ns(100))
    assert far.encode == near.encode
    assert machine.link_bytes_per_s == inf
    assert near.receiver != Cost()


def test_what_source_sink_and_codec_cost_is_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {ALONE: (100.0, 0.0), FUSED: (130.0, 0.0), LOCAL: (150.0, 0.0), ACROSS: (175.0, 125.0)}
    monkeypatch.setattr(module, "run_pair", lambda trials, **_: [told[t.distance] for t in trials])
    monkeypatch.setattr(module, "measure_codec", lambda *_, **__: CodecTimes(15.0, 25.0, 50.0))
    machine = calibrate(detect())
    assert machine.same_place.send_ns(50) + machine.same_place.receive_ns(50) == pytest.approx(20)
    assert machine.same_socket.sender.ns(50) == pytest.approx(175 - 100 - 15)
    assert machine.same_socket.receiver.ns(50) == pytest.approx(125 - 30 - 25)
    assert machine.same_socket.send_ns(50) == pytest.approx(175 - 100)
