"""When epochs begin and what they say: the coordinator's part alone."""

from __future__ import annotations

from typing import Any

import tailrace as tr
from tailrace.checkpoint.committing import next_manifest
from tailrace.checkpoint.epochs import Begin, Commit, Epochs, Write
from tailrace.checkpoint.manifest import Manifest
from tailrace.control.protocol import Snapshotted


def begun(workers: int = 2) -> Epochs:
    epochs = Epochs(workers, every_s=1.0)
    epochs.go(0.0)
    assert epochs.tick(1.0) == [Begin(1, last=False)]
    return epochs


def settle(epochs: Epochs, epoch: int) -> None:
    for rank in range(epochs.workers):
        epochs.settled_by(rank, epoch)


def test_an_epoch_begins_when_all_have_settled_the_one_before() -> None:
    epochs = begun()
    for rank in range(2):
        epochs.cut(rank, 1, "", ended=False)
    epochs.written(1)
    epochs.settled_by(0, 1)
    assert (epochs.tick(5.0), epochs.due_s) == ([], None)
    epochs.settled_by(1, 0)  # of an epoch before
    assert epochs.tick(5.0) == []
    epochs.settled_by(1, 1)
    assert epochs.tick(5.0) == [Begin(2, last=False)]


def test_nobody_waits_for_who_has_left_or_was_lost_before_it_had_settled() -> None:
    for gone in (lambda epochs: epochs.count(1), lambda epochs: (epochs.halt(), epochs.go(2.0))):
        epochs = begun()
        for rank in range(2):
            epochs.cut(rank, 1, "", ended=False)
        epochs.written(1)
        epochs.settled_by(0, 1)
        gone(epochs)
        assert epochs.tick(5.0) == [Begin(2, last=False)]


def part(rank: int, epoch: int, *finished: tuple[str, int]) -> Snapshotted:
    return Snapshotted(rank, epoch, (), (), finished, ended=False)


def test_an_epoch_in_which_all_had_ended_is_the_end() -> None:
    epochs = begun()
    assert epochs.cut(0, 1, "a", ended=True) == []
    assert epochs.cut(1, 1, "b", ended=True) == [Write(1, ("a", "b"), ended=True)]


def test_who_has_ended_since_its_cut_needs_another_epoch_to_say_so() -> None:
    epochs = begun()
    epochs.cut(0, 1, "a", ended=False)
    epochs.drained(0)
    epochs.drained(1)
    assert epochs.cut(1, 1, "b", ended=True) == [Write(1, ("a", "b"), ended=False)]
    assert epochs.written(1) == [Commit(1, last=False)]
    settle(epochs, 1)
    assert epochs.tick(1.1) == [Begin(2, last=True)]  # there is nothing to wait for
    epochs.cut(0, 2, "a", ended=True)
    assert epochs.cut(1, 2, "b", ended=True) == [Write(2, ("a", "b"), ended=True)]
    assert epochs.written(2) == [Commit(2, last=True)]
    assert epochs.over


def test_a_stop_is_an_epoch_that_does_not_say_it_was_all() -> None:
    epochs = begun()
    epochs.stop()
    for rank in range(2):
        epochs.cut(rank, 1, "", ended=False)
    assert epochs.written(1) == [Commit(1, last=False)]
    settle(epochs, 1)
    assert epochs.tick(1.1) == [Begin(2, last=True)]
    epochs.cut(0, 2, "a", ended=False)
    assert epochs.cut(1, 2, "b", ended=True) == [Write(2, ("a", "b"), ended=False)]


def manifest(before: Manifest, write: Write) -> Manifest:
    topology = tr.Topology("job")
    numbers = topology.source([1], name="in", parallelism=2)
    numbers.map(abs, name="out", parallelism=2).sink(print, name="end")
    return next_manifest(before, write, topology.graph, {})


def test_a_manifest_says_who_had_finished_also_after_those_that_do_not_repeat_it() -> None:
    beginning = Manifest.beginning("job", "name", 0.0)
    one: Any = Write(1, (part(0, 1, ("in", 0)), part(1, 1)), ended=False)
    first = manifest(beginning, one)
    assert (first.finished, first.operators["in"].finished_in) == (False, (0,))
    assert not first.operators["in"].finished
    two: Any = Write(2, (part(0, 2), part(1, 2, ("in", 1))), ended=True)
    second = manifest(first, two)
    assert (second.finished, second.operators["in"].finished_in) == (True, (0, 1))
    assert second.operators["in"].finished
    assert not second.operators["out"].finished


def all_cut(epochs: Epochs, epoch: int) -> None:
    for rank in range(epochs.workers):
        epochs.cut(rank, epoch, "", ended=False)
    epochs.written(epoch)
    settle(epochs, epoch)


def test_who_asks_while_an_epoch_is_under_way_gets_the_one_after_it() -> None:
    epochs = begun()
    epochs.ask()
    asked = epochs.begun
    all_cut(epochs, 1)
    assert epochs.counted == asked
    assert epochs.tick(1.1) == [Begin(2, last=False)]
    all_cut(epochs, 2)
    assert epochs.counted > asked
    assert epochs.tick(1.2) == []


def test_an_epoch_that_was_asked_for_and_is_lost_begins_again_at_once() -> None:
    epochs = begun()
    all_cut(epochs, 1)
    epochs.ask()
    asked = epochs.begun
    assert epochs.tick(1.1) == [Begin(2, last=False)]
    epochs.halt()
    epochs.go(1.2)
    assert epochs.tick(1.2) == [Begin(2, last=False)]
    assert epochs.counted <= asked
    all_cut(epochs, 2)
    assert epochs.counted > asked
    assert epochs.tick(1.3) == []
