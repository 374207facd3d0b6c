"""What a worker tells the coordinator, every half second and at the end."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.control.protocol import Progress
from tailrace.runtime.core import Core
from tailrace.runtime.guard import Counts
from tailrace.runtime.histogram import Histogram
from tailrace.runtime.state import Stateful


def gathered(core: Core, progress: Progress) -> Progress:
    """A report with what a core has done so far filled in, at once."""
    for _ in gather(core, progress):
        pass
    return progress


def gather(core: Core, progress: Progress) -> Iterator[None]:
    """Fill in what a core has done so far, in steps of some ten microseconds.

    Between two of them it may go on, with the same instances: what is told of different ones, or of
    a stream and its operators, is then of different moments.
    """
    progress.change = core.change
    former = core.counting.former
    for name, counts in former.operators.items():
        progress.operators.setdefault(name, Counts()).add(counts)
    progress.sources.update(former.sources)
    for label, latency in former.latency.items():
        progress.latency.setdefault(label, Histogram()).merge(latency)
    for instance in core.instances:
        for name, counts in instance.counts.items():
            progress.operators.setdefault(name, Counts()).add(counts)
        for name, step in instance.steps:
            if isinstance(step, Stateful) and (held := step.held):
                progress.keys[name] = progress.keys.get(name, 0) + held
        if instance.source is not None:
            name = instance.chain.operators[0]
            progress.sources[name] = progress.operators[name].records_in
        label = instance.chain.label
        if instance.latency.counts:
            if label not in progress.latency:
                progress.latency[label] = Histogram()
            progress.latency[label].merge(instance.latency)
        # Between two rounds a queue is mostly empty: what counts is how full it was meanwhile.
        queued = max(instance.queued_records, instance.queue.peak)
        instance.queue.peak = 0
        progress.queued[label] = progress.queued.get(label, 0) + queued
        room = sum(inlet.window for inlet in instance.inlets.values())
        progress.room[label] = progress.room.get(label, 0) + room
        progress.throttled.update(one.label for one in instance.full)
        yield
    for label, stats in core.counting.streams().items():
        progress.sent[label] = stats.sent
        progress.received[label] = stats.received
        progress.transfer[label] = stats.transfer
        progress.wait[label] = stats.wait
    yield
    progress.lanes = core.counting.lanes()
    yield
    progress.sent_by = core.counting.sent()
    yield
    progress.waits = core.counting.waits()
    yield
    home = core.deployment.wiring.home  # instances are numbered by what is deployed now
    busy_s = {
        home[instance.id.operator].first + instance.id.index: sum(
            counts.execute_ns for counts in instance.counts.values()
        )
        / 1e9
        for instance in core.instances
    }
    whole_s = sum(busy_s.values()) or 1.0
    share = progress.cpu_s / whole_s
    progress.instances = [(i, own_s, share * own_s) for i, own_s in busy_s.items()]
    if core.replaying is not None:
        progress.replays = core.replaying.counts()
    yield
