"""The sinks of every peer system: they check what comes and note when it came."""

import json
import time
from array import array
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from struct import Struct
from typing import Any

from engine_peers.workloads import POOL, Tally, WordTally, chain_records
from peer_systems.feed import Order

_HEAD = Struct("<qq")  # number, due time


class Sink:
    """One instance's sink; `tell` leaves its numbers in the folder under a name of its own."""

    def __init__(self, order: Order, name: str) -> None:
        self._path = Path(order.folder) / f"sink-{name}.json"
        self._paced = order.rate_per_s > 0
        self._dues_ns = array("q")
        self._arrivals_ns = array("q")

    def _arrived(self, dues_ns: Sequence[int]) -> None:
        self._dues_ns.extend(dues_ns)
        self._arrivals_ns.extend([time.monotonic_ns()] * len(dues_ns))

    def _tell(self, told: dict[str, Any]) -> None:
        self._path.write_text(json.dumps(told))
        with self._path.with_suffix(".latencies").open("wb") as file:
            self._dues_ns.tofile(file)
            self._arrivals_ns.tofile(file)


class WordSink(Sink):
    """Takes every word with its count and its due time."""

    def __init__(self, order: Order, name: str) -> None:
        super().__init__(order, name)
        self._tally = WordTally(every_write=False)

    def write(self, words: Sequence[str], counts: Sequence[int], dues_ns: Sequence[int]) -> None:
        """Take some, each count in the place of its word."""
        self._tally.write(zip(words, counts, strict=True), len(words))
        if self._paced:
            self._arrived(dues_ns)

    def tell(self) -> None:
        """Leave the numbers in the folder."""
        self._tell(self._tally.results())


class ChainSink(Sink):
    """Takes every record of the chain, in whatever order, and counts each number of the pool."""

    def __init__(self, order: Order, name: str) -> None:
        super().__init__(order, name)
        self._tally = Tally(every_write=False)
        self._seen: Counter[Any] = Counter()

    def write(self, records: Sequence[bytes]) -> None:
        """Take some."""
        if self._paced:
            numbers, dues_ns = zip(*map(_HEAD.unpack_from, records), strict=True)
            self._seen.update(numbers)
            self._arrived(dues_ns)
        else:
            self._seen.update(records)
        self._tally.note(len(records))

    def tell(self) -> None:
        """Leave the numbers in the folder; a record that nobody sent is a stranger."""
        names = range(POOL) if self._paced else chain_records()
        seen = [self._seen.pop(name, 0) for name in names]
        self._tell({**self._tally.results(), "seen": seen, "strangers": self._seen.total()})
