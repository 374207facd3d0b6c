"""What a worker tells the coordinator, every half second and at the end."""

from __future__ import annotations

from tailrace.control.protocol import Progress
from tailrace.runtime.core import Core
from tailrace.runtime.guard import Counts
from tailrace.runtime.histogram import Histogram


def progress_of(
    core: Core, now_ns: int, ended: bool, cpu_s: float, running_s: float = 0.0
) -> Progress:
    """What a core has done so far."""
    progress = Progress(core.rank, now_ns, ended, cpu_s, running_s)
    for instance in core.instances:
        for name, counts in instance.counts.items():
            total = progress.operators.get(name)
            if total is None:
                total = progress.operators[name] = Counts()
            total.records_in += counts.records_in
            total.skipped += counts.skipped
            total.dead += counts.dead
            total.late += counts.late
            total.execute_ns += counts.execute_ns
            total.execute.merge(counts.execute)
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
        progress.throttled.update(lane.exchange.label for lane in instance.full)
    for label, stats in core.counting.streams().items():
        progress.sent[label] = stats.sent
        progress.received[label] = stats.received
        progress.transfer[label] = stats.transfer
        progress.wait[label] = stats.wait
    progress.lanes = core.counting.lanes()
    progress.sent_by = core.counting.sent()
    progress.waits = core.counting.waits()
    busy_s = {
        instance.number: sum(counts.execute_ns for counts in instance.counts.values()) / 1e9
        for instance in core.instances
    }
    whole_s = sum(busy_s.values()) or 1.0
    progress.instances = [(i, own_s, cpu_s * own_s / whole_s) for i, own_s in busy_s.items()]
    return progress
