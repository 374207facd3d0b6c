"""From an operator's output to the outlets of a stream, by its grouping."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from operator import length_hint
from typing import Any

from tailrace.graph.model import Grouping, Record, Rule, Stream
from tailrace.routing.hashing import stable_hash
from tailrace.runtime.hot import deal_by_key, same_keys
from tailrace.runtime.outlet import Marker, Outlet
from tailrace.runtime.step import OperatorFailed, Put

_REMEMBERED_KEYS = 1 << 16

Touch = Callable[[Outlet], None]


class Router:
    """Spreads lists of records over the outlets of one stream.

    `touch` is called for every outlet that got something; `now` holds the emission time of what is
    being processed.
    """

    def __init__(
        self,
        grouping: Grouping,
        outlets: list[Outlet],
        local: list[Outlet],
        first: int,
        now: Callable[[], int],
        touch: Touch,
        stream: Stream,
    ) -> None:
        self.outlets = outlets
        self.output = stream.output
        self._label = stream.label
        self._now = now
        self._touch = touch
        self._next = first  # shuffles of different senders start at different receivers
        self._function = grouping.function
        self._targets: dict[Hashable, Any] = {}
        self._load = [0] * len(outlets)
        self._shuffled = local if grouping.rule is Rule.LOCAL_OR_SHUFFLE and local else outlets
        self._put = self._by_rule(grouping.rule)

    def _by_rule(self, rule: Rule) -> Put:
        if rule is Rule.ALL:
            return self._to_all
        if rule is Rule.KEY and len(self.outlets) == 1 and self._function is None:
            return self._keys_to_first
        if rule is Rule.GLOBAL or len(self.outlets) == 1:
            return self._to_first
        return {
            Rule.FORWARD: self._to_first,
            Rule.SHUFFLE: self._shuffle,
            Rule.LOCAL_OR_SHUFFLE: self._shuffle,
            Rule.KEY: self._by(self._by_key),
            Rule.PARTIAL_KEY: self._by(self._by_partial_key),
            Rule.CUSTOM: self._by(self._custom),
        }[rule]

    def put(self, records: list[Record]) -> None:
        """Spread the records. A grouping that raises fails the job: no policy covers it."""
        self._put(records)

    def mark(self, marker: Marker) -> None:
        """Send a marker to every receiver."""
        for outlet in self.outlets:
            outlet.mark(marker)
            self._touch(outlet)

    def _to_first(self, records: list[Record]) -> None:
        outlet = self.outlets[0]
        outlet.add(records, self._now())
        self._touch(outlet)

    def _keys_to_first(self, records: list[Record]) -> None:
        same_keys(records)
        self._to_first(records)

    def _to_all(self, records: list[Record]) -> None:
        emitted_ns = self._now()
        for outlet in self.outlets:
            outlet.add(records.copy(), emitted_ns)
            self._touch(outlet)

    def _shuffle(self, records: list[Record]) -> None:
        emitted_ns = self._now()
        outlets = self._shuffled
        count = len(outlets)
        if len(records) == 1:
            outlet = outlets[self._next % count]
            outlet.add(records, emitted_ns)
            self._touch(outlet)
        else:
            for i in range(min(count, len(records))):
                outlet = outlets[(self._next + i) % count]
                outlet.add(records[i::count], emitted_ns)
                self._touch(outlet)
        self._next = (self._next + len(records)) % count

    def _by(self, deal: Callable[[Iterator[Record], list[list[Record]]], None]) -> Put:
        """Let `deal` put each record into the part of its receiver; it may call the user's code."""

        def put(records: list[Record]) -> None:
            parts: list[list[Record]] = [[] for _ in self.outlets]
            iterator = iter(records)
            try:
                deal(iterator, parts)
            except Exception as error:
                record = records[len(records) - length_hint(iterator) - 1]
                raise OperatorFailed(f"grouping of {self._label}", record, error) from error
            emitted_ns = self._now()
            for outlet, part in zip(self.outlets, parts, strict=True):
                if part:
                    outlet.add(part, emitted_ns)
                    self._touch(outlet)

        return put

    def _by_key(self, records: Iterator[Record], parts: list[list[Record]]) -> None:
        deal_by_key(records, self._function, self._targets, parts, self._place)

    def _place(self, key: Hashable) -> int:
        target: int = self._remember(key, stable_hash(key) % len(self.outlets))
        return target

    def _by_partial_key(self, records: Iterator[Record], parts: list[list[Record]]) -> None:
        """Each key has two receivers; each record goes to the one that has got fewer so far."""
        load, key_of = self._load, self._function
        for record in records:
            key = record if key_of is None else key_of(record)
            choices = self._targets.get(key)
            if choices is None:
                first = stable_hash(key)
                second = stable_hash((first, 1)) % (len(parts) - 1)
                first %= len(parts)
                choices = self._remember(key, (first, second + (second >= first)))
            target = min(choices, key=load.__getitem__)
            load[target] += 1
            parts[target].append(record)

    def _remember(self, key: Hashable, target: Any) -> Any:
        if len(self._targets) >= _REMEMBERED_KEYS:
            self._targets.clear()
        self._targets[key] = target
        return target

    def _custom(self, records: Iterator[Record], parts: list[list[Record]]) -> None:
        assert self._function is not None
        for record in records:
            index = self._function(record, len(parts))
            if not 0 <= index < len(parts):
                raise ValueError(
                    f"the grouping function gave {index!r} for {record!r}; there are"
                    f" {len(parts)} instances"
                )
            parts[index].append(record)
