"""Who leads a change: what it asks for, when it is over, and what is gone back to."""

from __future__ import annotations

import pytest

import tailrace as tr
from tailrace.checkpoint.epochs import Begin, Epochs
from tailrace.control.changing import LOST, CallOff, Changing, Prepare, Switch
from tailrace.graph.wiring import InstanceId
from tailrace.runtime.deployment import Layout, changed, deploy


def topology() -> tr.Topology:
    made = tr.Topology()
    made.source([1], name="in").shuffle().sink(print, name="out", parallelism=1)
    return made


def layouts() -> tuple[Layout, Layout]:
    before = deploy(topology().graph, [0, 1])
    return before.layout, changed(before, workers={InstanceId("out", 0): 0}).layout


def running() -> Epochs:
    epochs = Epochs(2, 1.0, committed=7)
    epochs.go(0.0)
    return epochs


def test_without_checkpoints_what_is_done_is_done_for_good() -> None:
    before, after = layouts()
    changing = Changing(before)
    number = changing.ask(lambda _: after, 0.0)
    assert changing.look(2, None, 0.0) == [Prepare(number, after)]
    assert changing.prepared(0, number, "", 1.0, None) == []
    assert changing.prepared(1, number, "", 1.0, None) == [Switch(number)]
    assert not changing.switched(0, number, 3, 2.0, None)
    assert changing.switched(1, number, 4, 2.0, None)
    known = changing.known(number)
    assert known is not None
    assert (known.status, known.moved_keys) == ("done", 7)
    assert changing.layout is changing.kept is after, "nobody goes back to what was before"


def test_with_checkpoints_it_comes_with_the_next_epoch_and_no_other_begins() -> None:
    before, after = layouts()
    changing, epochs = Changing(before), running()
    number = changing.ask(lambda _: after, 0.0)
    assert changing.look(2, epochs, 0.0) == [Prepare(number, after, epoch=8)]
    assert epochs.tick(100.0) == [], "an epoch is due, and waits"
    for rank in range(2):
        assert changing.prepared(rank, number, "", 100.0, epochs) == []
    assert epochs.tick(100.0) == [Begin(8, last=False, change=number)]
    changing.epoch_begins(8)
    assert changing.layout_of(8) is before, "it is cut before anything moves"
    for rank in range(2):
        epochs.cut(rank, 8, None, ended=False)
        changing.switched(rank, number, 0, 101.0, epochs)
    epochs.written(8)
    for rank in range(2):
        epochs.settled_by(rank, 8)
    changing.epoch_counts(8)
    assert changing.kept is before
    assert epochs.tick(200.0) == [Begin(9, last=False)]
    changing.epoch_begins(9)
    assert changing.layout_of(9) is after


def test_one_that_a_worker_cannot_prepare_is_called_off() -> None:
    before, after = layouts()
    changing, epochs = Changing(before), running()
    number = changing.ask(lambda _: after, 0.0)
    changing.look(2, epochs, 0.0)
    assert changing.prepared(1, number, "no room", 1.0, epochs) == [CallOff(number)]
    known = changing.known(number)
    assert known is not None
    assert (known.status, known.error) == ("failed", "no room")
    assert changing.layout is before
    assert epochs.tick(100.0), "epochs go on"


def test_who_asks_after_a_loss_does_not_find_it_done() -> None:
    before, after = layouts()
    changing, epochs = Changing(before), running()
    number = changing.ask(lambda _: after, 0.0)
    changing.look(2, epochs, 0.0)
    for rank in range(2):
        changing.prepared(rank, number, "", 1.0, epochs)
    changing.set_back(2.0)
    known = changing.known(number)
    assert known is not None
    assert (known.status, known.error) == ("undone", LOST)
    assert changing.layout is before


def test_one_that_was_done_after_the_last_epoch_is_undone_with_the_rest() -> None:
    before, after = layouts()
    changing, epochs = Changing(before), running()
    number = changing.ask(lambda _: after, 0.0)
    changing.look(2, epochs, 0.0)
    for rank in range(2):
        changing.prepared(rank, number, "", 1.0, epochs)
    for rank in range(2):
        changing.switched(rank, number, 0, 2.0, epochs)
    changing.set_back(3.0)
    assert changing.begin() is before
    known = changing.known(number)
    assert known is not None
    assert known.status == "undone"


def one_more(layout: Layout) -> Layout:
    """An instance of the sink more than there are, of which there may be three."""
    before = layout.of(topology().graph)
    number = before.graph.operator("out").parallelism
    if number == 3:
        raise ValueError("there are three already")
    workers = {InstanceId("out", number): 0}
    return changed(before, parallelism={"out": number + 1}, workers=workers).layout


def test_one_that_is_asked_for_while_the_job_recovers_is_of_what_it_goes_back_to() -> None:
    before, _ = layouts()
    changing, epochs = Changing(before), running()
    first = changing.ask(one_more, 0.0)
    changing.look(2, epochs, 0.0)
    for rank in range(2):
        changing.prepared(rank, first, "", 1.0, epochs)
    changing.switched(0, first, 0, 2.0, epochs)
    changing.switched(1, first, 0, 2.0, epochs)
    assert changing.layout.parallelism["out"] == 2
    changing.set_back(3.0)
    epochs.halt()
    second = changing.ask(one_more, 3.0, recovers=True)
    changing.set_back(4.0)  # nobody has heard of it yet
    changing.begin()
    epochs.go(5.0)
    (prepare,) = changing.look(2, epochs, 5.0)
    assert isinstance(prepare, Prepare)
    assert (prepare.number, prepare.layout.parallelism["out"]) == (second, 2)


def test_one_that_turns_out_to_be_impossible_when_the_job_has_recovered_fails() -> None:
    before, _ = layouts()
    full = one_more(one_more(before))
    changing, epochs = Changing(full), running()
    with pytest.raises(ValueError, match="three already"):
        changing.ask(one_more, 0.0)
    assert changing.number == 0
    number = changing.ask(one_more, 0.0, recovers=True)
    assert changing.look(2, epochs, 1.0) == []
    known = changing.known(number)
    assert known is not None
    assert (known.status, known.error) == ("failed", "there are three already")
    assert epochs.tick(100.0), "epochs go on"
