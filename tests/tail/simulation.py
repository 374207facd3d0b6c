"""Senders and servers under virtual time: what the policies do, for comparison with theory.

Arrivals are Poisson, service times exponential with a mean of each server's own. Every record takes
`way_ns` to its server, and the word about it as long back. What a sender knows, and how servers
learn how long they take, is as in the engine.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from statistics import fmean
from typing import Any

from tailrace.tail.late import Late
from tailrace.tail.receivers import Policy

MS = 1_000_000
SAMPLES = 32
FORGET_NS = 100 * MS


@dataclass
class Known:
    """What one sender knows of one server."""

    peer: int
    here: bool = False
    near: bool = True
    waiting: int = 0
    others: int = 0
    service_ns: int = 0
    spread_ns: int = 0
    way_ns: int = 0
    turn_ns: int = 0
    heard_ns: int = 0
    taken: int = 0
    under_way_ns: int = 0
    measured_ns: int = 0
    probe_ns: int | None = None
    probes: int = 0
    given: list[int] | None = None
    """The work that all senders have given to each server, if all see that."""

    @property
    def work_ns(self) -> int:
        return -1 if self.given is None else self.given[self.peer]

    @property
    def fill(self) -> float:
        return self.waiting / 64 if self.waiting < 64 else 1.0

    def measure(self, now_ns: int) -> None:
        self.under_way_ns += self.waiting * (now_ns - self.measured_ns)
        self.measured_ns = now_ns


@dataclass
class Server:
    mean_ns: float
    queue: deque[tuple[int, int, int]] = field(default_factory=deque)
    """Sender, when the record was emitted, when it came."""
    of_sender: Counter[int] = field(default_factory=Counter)
    """How many of them are queued."""
    busy: bool = False
    service_ns: int = 0
    spread_ns: int = 0
    samples: int = 0
    ended_ns: int = 0
    done: int = 0


@dataclass
class Found:
    waits_ms: list[float]
    """From emission to the beginning of the service, of all that came after the warm-up."""
    latencies_ms: list[float]
    shares: list[float]
    """Of the records, for each server."""

    @property
    def mean_wait_ms(self) -> float:
        return fmean(self.waits_ms)

    def percentile_ms(self, percent: float) -> float:
        ordered = sorted(self.latencies_ms)
        return ordered[int(len(ordered) * percent / 100)]


class InTurn:
    """What is done without a policy."""

    def __init__(self) -> None:
        self._turn = -1

    def choose(self, receivers: Sequence[Any], now_ns: int) -> int:
        self._turn = (self._turn + 1) % len(receivers)
        return self._turn


class AtRandom:
    """Independent queues with Poisson arrivals: M/M/1."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def choose(self, receivers: Sequence[Any], now_ns: int) -> int:
        return self._chance.randrange(len(receivers))


def simulate(
    policy: Callable[[int], Policy] | None,
    *,
    means_ms: Sequence[float],
    utilisation: float,
    records: int = 200_000,
    senders: int = 1,
    way_ms: float = 0.0,
    seed: int = 0,
    slower: Callable[[int, int], float] = lambda server, now_ns: 1.0,
    warm_s: float = 1.0,
    live: bool = False,
) -> Found:
    """Without a policy the queues are shared: each sender has one.

    `live`: senders are of one node, and see what all of them have given to each server.
    """
    chance = random.Random(seed)
    servers = [Server(mean * MS) for mean in means_ms]
    rate = utilisation * sum(1 / server.mean_ns for server in servers)
    way_ns = int(way_ms * MS)
    given = [0] * len(servers) if live else None
    own = [[0] * len(servers) for _ in range(senders)]
    known = [[Known(place, given=given) for place in range(len(servers))] for _ in range(senders)]
    policies = [policy(sender) for sender in range(senders)] if policy else []
    lates = [Late() for _ in range(senders)]
    queues: list[deque[int]] = [deque() for _ in range(senders)]
    found = Found([], [], [])
    numbers = count()
    events: list[tuple[int, int, str, int, int, int]] = []
    warm_ns = warm_s * 1e9

    def at(when_ns: int, kind: str, first: int = 0, second: int = 0, third: int = 0) -> None:
        heappush(events, (when_ns, next(numbers), kind, first, second, third))

    def send(sender: int, place: int, emitted_ns: int, now_ns: int) -> None:
        one = known[sender][place]
        one.measure(now_ns)
        if not one.waiting:
            one.probe_ns = now_ns
        one.waiting += 1
        publish(sender, place)
        at(now_ns + way_ns, "came", sender, place, emitted_ns)

    def publish(sender: int, place: int) -> None:
        if given is not None:
            one = known[sender][place]
            work_ns = one.waiting * (one.service_ns or MS // 10)
            given[place] += work_ns - own[sender][place]
            own[sender][place] = work_ns

    def deal(sender: int, now_ns: int) -> None:
        queue = queues[sender]
        while queue:
            chosen = lates[sender].next(known[sender], len(queue), now_ns)
            if chosen is None:
                return
            for _ in range(min(chosen[1], len(queue))):
                send(sender, chosen[0], queue.popleft(), now_ns)

    def begin(place: int, now_ns: int) -> None:
        server = servers[place]
        sender, emitted_ns, _ = server.queue[0]
        server.busy = True
        took_ns = int(chance.expovariate(1 / server.mean_ns) * slower(place, now_ns))
        if emitted_ns > warm_ns:
            found.waits_ms.append((now_ns - emitted_ns) / MS)
            found.latencies_ms.append((now_ns + took_ns - emitted_ns) / MS)
        if now_ns - server.ended_ns > FORGET_NS:
            server.samples = 0
        server.samples = min(server.samples + 1, SAMPLES)
        at(now_ns + took_ns, "done", sender, place, took_ns)

    at(int(chance.expovariate(rate)), "arrives")
    arrived = 0
    while events:
        now_ns, _, kind, sender, place, extra = heappop(events)
        if kind == "arrives":
            arrived += 1
            sender = chance.randrange(senders)
            if policies:
                send(sender, policies[sender].choose(known[sender], now_ns), now_ns, now_ns)
            else:
                queues[sender].append(now_ns)
                deal(sender, now_ns)
            if arrived < records:
                at(now_ns + max(int(chance.expovariate(rate)), 1), "arrives")
        elif kind == "came":
            servers[place].queue.append((sender, extra, now_ns))
            servers[place].of_sender[sender] += 1
            if not servers[place].busy:
                begin(place, now_ns)
        elif kind == "done":
            server = servers[place]
            server.queue.popleft()
            server.of_sender[sender] -= 1
            server.ended_ns = now_ns
            if server.samples == 1:
                server.service_ns, server.spread_ns = extra, 0
            apart_ns = abs(extra - server.service_ns)
            server.spread_ns += (apart_ns - server.spread_ns) // server.samples
            server.service_ns += (extra - server.service_ns) // server.samples
            server.done += 1
            server.busy = False
            at(now_ns + way_ns, "told", sender, place, server.service_ns)
            if server.queue:
                begin(place, now_ns)
        else:
            one = known[sender][place]
            one.measure(now_ns)
            one.waiting -= 1
            one.taken += 1
            one.heard_ns, one.service_ns, one.way_ns = now_ns, extra, way_ns
            one.spread_ns = servers[place].spread_ns
            publish(sender, place)
            one.others = len(servers[place].queue) - servers[place].of_sender[sender]
            if one.probe_ns is not None:
                one.probes = min(one.probes + 1, SAMPLES)
                one.turn_ns += (now_ns - one.probe_ns - extra - one.turn_ns) // one.probes
                one.probe_ns = None
            deal(sender, now_ns)
    found.shares = [server.done / arrived for server in servers]
    return found
