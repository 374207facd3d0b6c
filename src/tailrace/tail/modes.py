"""How the records of a shuffled stream are dealt, as plain data: the mode of each stream.

| mode | a record goes |
|---|---|
| off | to each receiver in turn |
| balance | where it will be done soonest, as far as the sender knows; decided when it is sent |
| shared | to whoever is free first: it waits in one queue of the sending worker until then |
| du | by shares that follow latencies, as in Du's thesis (algorithm 2) |
| storm | by shares that follow the fill of queues, as Storm's load-aware shuffle has them |

The last two are there to compare with. A stream that is "auto" begins in turn, and gets the mode
that `tailrace.tail.chooser` finds for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from random import Random
from typing import Literal, get_args

from tailrace.graph.model import Graph, Rule, Stream
from tailrace.tail.du import LatencyShares
from tailrace.tail.receivers import Policy
from tailrace.tail.replay import replay_named
from tailrace.tail.soonest import Soonest
from tailrace.tail.storm import LoadShares

Tail = Literal["off", "balance", "shared", "du", "storm"]
OwnTail = Literal["off", "balance", "shared", "du", "storm", "auto"]
"""What a stream may be told."""
AUTO: Literal["auto"] = "auto"
OFF: Tail = "off"
SHARED: Tail = "shared"
MODES: tuple[Tail, ...] = get_args(Tail)
SHUFFLED = (Rule.SHUFFLE, Rule.LOCAL_OR_SHUFFLE)
MAY_BE_DEALT = (*SHUFFLED, Rule.FORWARD)
"""What runs fused is shuffled when a change takes it apart."""


def check_tail(tail: str) -> Tail:
    """The mode of that name; ValueError if there is none."""
    for mode in MODES:
        if mode == tail:
            return mode
    raise ValueError(f"tail is {tail!r}; it must be one of {', '.join(map(repr, MODES))}")


def check_own(tail: str) -> OwnTail:
    """What a stream may be told by that name; ValueError if it is nothing."""
    if tail == AUTO:
        return AUTO
    try:
        return check_tail(tail)
    except ValueError as error:
        raise ValueError(f"{error}, or {AUTO!r}") from None


def parted(tail: str) -> tuple[Tail, str]:
    """How records are dealt, and what is sent again, where one name says both.

    >>> parted("shared"), parted("replay"), parted("auto")
    (('shared', 'off'), ('off', 'replay'), ('off', 'off'))
    """
    if tail == AUTO:
        return OFF, "off"
    if tail in MODES:
        return check_tail(tail), "off"
    try:
        replay_named(tail)
    except ValueError:
        known = ", ".join(map(repr, [*MODES, "replay", AUTO]))
        raise ValueError(f"tail is {tail!r}; it must be one of {known}") from None
    return OFF, tail


def policy_of(mode: Tail, seed: int, *, stays: bool = False) -> Policy | None:
    """What decides under a mode; None: whose turn it is.

    `stays`: what is in the same worker goes before others, while it is not overloaded.
    """
    if mode == "du":
        return LatencyShares(Random(seed))
    if mode == "storm":
        return LoadShares(Random(seed), stays=stays)
    return None if mode == OFF else Soonest(Random(seed), stays=stays)


def tail_of(stream: Stream) -> Tail:
    """The mode that a stream starts with."""
    tail = stream.grouping.tail
    if stream.grouping.rule not in SHUFFLED or tail is None or tail == AUTO:
        return OFF
    return check_tail(tail)


def with_tail(graph: Graph, tail: str) -> Graph:
    """The graph with a mode for its streams that have none of their own: while they are shuffled.

    That may be later: operators that run fused can be taken apart while the job runs.
    """
    mode = check_own(tail)
    streams = tuple(
        replace(one, grouping=replace(one.grouping, tail=mode))
        if one.grouping.rule in MAY_BE_DEALT and one.grouping.tail is None
        else one
        for one in graph.streams
    )
    return replace(graph, streams=streams)


def changes(graph: Graph, tail: str, streams: Iterable[str] | None = None) -> Mapping[int, Tail]:
    """The mode of each stream that is shuffled, or may come to be, by number; or of some, by label.

    >>> from tailrace.topology import Topology
    >>> topology = Topology()
    >>> topology.source([1]).shuffle().map(abs, parallelism=2).key_by().scan(max).sink(print)
    >>> changes(topology.graph, "shared")  # to map; from scan to the sink, should that be shuffled
    {0: 'shared', 2: 'shared'}
    """
    mode = check_tail(tail)
    known = {
        number: stream.label
        for number, stream in enumerate(graph.streams)
        if stream.grouping.rule in MAY_BE_DEALT
    }
    wanted = set(known.values()) if streams is None else set(streams)
    if missing := wanted - set(known.values()):
        raise ValueError(
            f"no shuffled stream {min(missing)!r}; there are {sorted(set(known.values()))}"
        )
    return {number: mode for number, label in known.items() if label in wanted}


def chosen(graph: Graph) -> list[int]:
    """The numbers of the streams whose mode is found while they run."""
    return [
        number
        for number, stream in enumerate(graph.streams)
        if stream.grouping.rule in MAY_BE_DEALT and stream.grouping.tail == AUTO
    ]
