"""SOL, the speed of light: messages that five operators do nothing but hand on, shuffled each time.

What it costs is the way between operators alone. TurboStream runs it with five instances of each
at 5,000 messages per second (and, to show the problem, with two).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from tailrace import Stream, Topology
from tailrace.runtime.source import Source
from tailrace.sources import rate

HOPS = 5
MESSAGE_BYTES = 100


def messages(
    seed: int = 0, size_bytes: int = MESSAGE_BYTES, distinct: int = 1000
) -> Callable[[int], bytes]:
    """The i-th message; they repeat after `distinct`."""
    chance = random.Random(seed)
    prepared = [chance.randbytes(size_bytes) for _ in range(distinct)]
    return lambda i: prepared[i % distinct]


def hand_on(message: bytes) -> bytes:
    """Do nothing."""
    return message


def sol(source: Source, parallelism: int = 5, hops: int = HOPS) -> tuple[Topology, Stream]:
    """The topology, and its stream of the messages as they came in."""
    topology = Topology("sol")
    stream = topology.source(source, name="messages")
    for hop in range(1, hops + 1):
        stream = stream.shuffle().map(hand_on, name=f"hop {hop}", parallelism=parallelism)
    return topology, stream


def expected(messages: Iterable[bytes]) -> list[bytes]:
    """The same in plain Python, in any order."""
    return list(messages)


def topology(per_s: float = 5000, seconds: float | None = None) -> Topology:
    """Ready to run: `tailrace run tailrace.apps.sol:topology`."""
    built, delivered = sol(rate(per_s, messages(), seconds=seconds))
    delivered.sink(lambda message: None, name="sink")
    return built
