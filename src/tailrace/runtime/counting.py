"""What a core has carried: by stream, by link, and from instance to instance."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tailrace.graph.model import Record
from tailrace.runtime.exchange import Lane
from tailrace.runtime.guard import Counts
from tailrace.runtime.histogram import Histogram

if TYPE_CHECKING:
    from tailrace.runtime.building import Site
    from tailrace.runtime.inlet import Inlet
    from tailrace.runtime.instance import Instance

_SAMPLE_RECORDS = 16


@dataclass
class StreamStats:
    """What one stream has carried, as seen at this worker."""

    sent: int
    received: int
    transfer: Histogram
    wait: Histogram


class SentBy(NamedTuple):
    """What one instance has sent on a stream since the start."""

    stream: int
    sender: int
    """The instance's index."""
    records: array[int]
    """To each receiver."""


class LaneCounts(NamedTuple):
    """What a worker has sent to gates since the start; columns, for there may be thousands."""

    gates: array[int]
    messages: array[int]
    records: array[int]
    bytes: array[int]
    """As encoded; inside a worker, what a sample of the stream's records would take."""


class WaitCounts(NamedTuple):
    """How long what came on links has waited, since the start."""

    gates: array[int]
    senders: array[int]
    """The workers."""
    records: array[int]
    waited_ns: array[int]
    """Of all of them together."""


def columns(rows: Iterable[Sequence[int]], width: int) -> list[array[int]]:
    """Rows of whole numbers as columns."""
    return [array("q", column) for column in zip(*rows, strict=True)] or [array("q")] * width


@dataclass
class Former:
    """What was done by what is here no more."""

    operators: dict[str, Counts] = field(default_factory=dict)
    sources: dict[str, int] = field(default_factory=dict)
    latency: dict[str, Histogram] = field(default_factory=dict)
    """By chain."""
    sent: Counter[int] = field(default_factory=Counter)
    received: Counter[int] = field(default_factory=Counter)
    """By stream."""


class Counting:
    """See above. Reads what the parts of a site have counted themselves."""

    def __init__(self, site: Site, size: Callable[[list[Record]], int]) -> None:
        self._site = site
        self._size = size
        self._sampled: set[int] = set()  # streams whose records were measured lately
        self._samples: dict[int, tuple[int, int]] = {}  # by stream: records and bytes
        self.former = Former()
        """Of instances and links that were here and are no more."""

    def left(self, instance: Instance, links: list[Inlet]) -> None:
        """An instance has left, and with it its links."""
        former, label = self.former, instance.chain.label
        for name, counts in instance.counts.items():
            former.operators.setdefault(name, Counts()).add(counts)
        if instance.source is not None:
            name = instance.chain.operators[0]
            former.sources[name] = former.operators[name].records_in
        if instance.latency.counts:
            former.latency.setdefault(label, Histogram()).merge(instance.latency)
        self.closed_links(links)

    def closed_links(self, links: Iterable[Inlet]) -> None:
        """Links have ended here."""
        for inlet in links:
            self.former.received[inlet.stream] += inlet.taken - inlet.base

    def closed_lanes(self, lanes: Iterable[Lane]) -> None:
        """Links have ended at the other side."""
        for lane in lanes:
            self.former.sent[lane.exchange.stream] += lane.sent - lane.base

    def see(self, lane: Lane) -> None:
        """Measure some records that never leave this worker, and so are never encoded."""
        stream = lane.exchange.stream
        if stream in self._sampled or not lane.records:
            return
        self._sampled.add(stream)
        runs = (item for item in lane.items if type(item) is tuple)
        _, _, records, *rest = next(runs)
        some: list[Record] = records[:_SAMPLE_RECORDS]
        if rest and rest[0] is not True:  # with their keys
            some = list(zip(some, rest[0], strict=False))
        count, size_bytes = self._samples.get(stream, (0, 0))
        self._samples[stream] = (count + len(some), size_bytes + self._size(some))

    def streams(self) -> dict[str, StreamStats]:
        """What each stream has carried, by label."""
        site = self._site
        graph = site.deployment.graph
        stats: dict[str, StreamStats] = {}
        by_number: dict[int, StreamStats] = {}
        for number in site.transfer:
            label = graph.streams[number].label
            if label in stats:  # a stream merged with itself
                stats[label].transfer.merge(site.transfer[number])
                stats[label].wait.merge(site.wait[number])
            else:
                transfer, wait = Histogram(), Histogram()
                transfer.merge(site.transfer[number])
                wait.merge(site.wait[number])
                stats[label] = StreamStats(0, 0, transfer, wait)
            by_number[number] = stats[label]
        for number, count in self.former.sent.items():
            by_number[number].sent += count
        for number, count in self.former.received.items():
            by_number[number].received += count
        for lane in site.lanes.values():
            by_number[lane.exchange.stream].sent += lane.sent - lane.base
        for inlet in site.inlets.values():
            by_number[inlet.stream].received += inlet.taken - inlet.base
        return stats

    def lanes(self) -> LaneCounts:
        """What has gone to each gate. Each call has the records inside the worker sampled anew."""
        self._sampled.clear()
        found = []
        for lane in self._site.lanes.values():
            if lane.messages:
                size_bytes = lane.bytes_sent
                sent = lane.sent - lane.base
                if lane.peer == self._site.rank:
                    count, measured = self._samples.get(lane.exchange.stream, (1, 0))
                    size_bytes = round(sent * measured / count)
                found.append((lane.gate, lane.messages, sent, size_bytes))
        return LaneCounts(*columns(found, 4))

    def sent(self) -> list[SentBy]:
        """What each instance has put into its streams, by receiver; gathered records included."""
        return [
            SentBy(router.exchange.stream, router.index, router.sent_to())
            for exchange in self._site.exchanges.values()
            for router in exchange.senders
        ]

    def waits(self) -> WaitCounts:
        """How long records have waited, by link."""
        rows = [
            (inlet.gate, inlet.peer, inlet.taken - inlet.base, inlet.waited_ns)
            for inlet in self._site.inlets.values()
            if inlet.taken > inlet.base
        ]
        return WaitCounts(*columns(rows, 4))
