"""The paper's synthetic tuples, the operators that count them, and three ways to route them.

A tuple has two keys and a padding. Each of n servers has as many first keys and second ones; a
source on each emits tuples of its own server's first keys, whose second key is of the same server
in `locality` of the cases and of another one in the others.
"""

from operator import itemgetter
from typing import Any

import tailrace as tr
from tailrace.routing.tables import Table, Tables

KEYS = 40
"""Of each kind and server: so many that hashes deal them about evenly."""
HASH, LOCAL, WORST = "hash", "locality", "worst"
ROUTINGS = (HASH, LOCAL, WORST)
FIRST, SECOND = "first", "second"


class Tuples:
    """The i-th tuple. Of n sources the k-th has every n-th, from the k-th."""

    def __init__(self, servers: int, locality: float, padding_bytes: int) -> None:
        self.servers = servers
        self.percent = round(100 * locality)
        self.padding_bytes = padding_bytes

    def __call__(self, i: int) -> tuple[str, str, bytes]:
        server, turn = i % self.servers, i // self.servers
        number = turn * 7 % KEYS
        chance = turn * 2_654_435_761 >> 7  # evenly spread over what follows, and without a seed
        other = server
        if chance % 100 >= self.percent and self.servers > 1:
            other = (server + 1 + chance // 100 % (self.servers - 1)) % self.servers
        # A padding of its own: what a message has twice, it holds once.
        return f"{server}.{number}", f"#{other}.{chance // 7 % KEYS}", bytes(self.padding_bytes)


class InTurn:
    """Records of a list, over and over."""

    def __init__(self, records: list[Any]) -> None:
        self.records = records

    def __call__(self, i: int) -> Any:
        return self.records[i % len(self.records)]


class Count(tr.Operator):
    """Counts its key, and hands the tuple on."""

    def process(self, record: Any) -> None:
        """One more."""
        self.state = (self.state or 0) + 1
        self.emit(record)


def counted(source: Any, servers: int) -> tr.Topology:
    """A source and both counts on each server."""
    topology = tr.Topology("tuples")
    tuples = topology.source(source, name="source", parallelism=servers)
    by_first = tuples.key_by(itemgetter(0)).process(Count(), name=FIRST, parallelism=servers)
    by_second = by_first.key_by(itemgetter(1)).process(Count(), name=SECOND, parallelism=servers)
    by_second.sink(lambda record: None, name="sink")
    return topology


def placement(servers: int) -> tuple[int, ...]:
    """Instance i of everything on server i."""
    return tuple(range(servers)) * 3


def tables(routing: str, servers: int) -> Tables | None:
    """None for hashes. "worst" sends what belongs together to different servers."""
    if routing == HASH:
        return None
    away = int(routing == WORST)
    numbers = [(server, number) for server in range(servers) for number in range(KEYS)]
    first: dict[Any, int] = {f"{server}.{number}": server for server, number in numbers}
    second: dict[Any, int] = {f"#{s}.{number}": (s + away) % servers for s, number in numbers}
    return Tables({FIRST: Table(servers, first), SECOND: Table(servers, second)})
