"""Latency and rate of messages between two processes of one node: the ring and its rivals.

    python bench/ipc.py [--quick] [--rounds N] [--out FOLDER]

Reproduces figure 8 of TurboStream (ICDCS'18) on this machine, all transports in one run:

(a) mean latency of 10 to 320 KB messages at 100 per second, ring of 2 MB
(b) mean latency of 10 and 40 KB messages at 100 to 30,000 per second, ring of 2 MB
(c) mean latency through rings of about 5 to 200 messages (a ring's size is a power of two)
(d) small messages: 100 B, at full speed; CPU of both ends per message

Transports: the ring, read by copy and in place; Netty between two JVMs over loopback TCP, flushing
each message and flushing when nothing more waits; a multiprocessing pipe; a Unix socket; pyzmq over
ipc, which gathers by itself. In (d) the ring has a batching variant, too, as Netty has: the sender
gathers 256 messages and writes them with one call (the paper's batch form); the receiver gets each
as an object of its own. The headline's `ring` is the best variant, `ring_single` the best of those
with one call per message.

What a latency is. From the time at which a message was *due* to the moment at which the receiver
holds its payload, in CLOCK_MONOTONIC, which all processes share. Senders are open loop: message i
is due at start + i / rate. Counting from the due time and not from the send call means that a
sender which is blocked, or late because the machine is busy, cannot hide the waiting that it causes
(coordinated omission). The table has the mean from the send call beside it. A transport that cannot
keep up is stopped at twice the planned time and marked saturated: its mean then says how long it
was allowed to fall behind, no more.

What it is not. Payloads are built once and hardly read: this is transport, not serialization. The
ring in place, Netty, and pyzmq from 64 KB on hand out the payload without a copy; the others copy.
Every message of a latency measurement is checked for order and for its first and last bytes. In
(d) messages are only counted. Senders spin before a message is due, but yield, or transports with
threads of their own would lack a core. Netty's CPU time has the JVM's own threads in it.

Noise. Peers live for the whole run and are warmed up first. Transports take turns at every point,
and all of it is repeated in rounds of changing order; reported are the median of the rounds and
their range. Compare numbers only inside one run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from harness.frame import Benchmark, Options, busy_percent, main, processor_ticks
from harness.process import PeerError
from ipc_peers.pair import Pair, netty_command, python_command
from ipc_peers.report import HEADLINES, document, headline, table
from ipc_peers.results import DEFAULT_RING_BYTES, Point, Results, Variant

VARIANTS = (
    Variant("ring_copy", "ring, copy", "ring", "copy"),
    Variant("ring_view", "ring, in place", "ring", "view"),
    Variant("ring_drain", "ring, drained", "ring", "drain", rate_only=True),
    Variant("ring_batch", "ring, batching", "ring", "batch", rate_only=True),
    Variant("netty_flush", "Netty, flush each", "netty", "flush"),
    Variant("netty_batch", "Netty, batching", "netty", "batch"),
    Variant("pipe", "pipe", "pipe"),
    Variant("uds", "Unix socket", "uds"),
    Variant("zmq", "pyzmq ipc", "zmq"),
)
SMALL_BYTES = 100
WARM_UP_MESSAGES = {"netty": 400_000}  # a JVM compiles while it runs
DEFAULT_WARM_UP_MESSAGES = 30_000


@dataclass(frozen=True)
class Plan:
    """What to measure and for how long."""

    points: tuple[Point, ...]
    rounds: int
    latency_s: float
    slow_latency_s: float  # at 100 messages per second, where a second holds few of them
    rate_s: float
    idle_s: float
    budget_s: float


def quick_plan() -> Plan:
    """Only the headline, in less than 50 s with everything around it."""
    return Plan(tuple(HEADLINES.values()), 3, 0.3, 0.4, 0.15, 2.0, budget_s=44)


def full_plan() -> Plan:
    """All panels of the figure."""
    sizes = [Point(kb << 10, 100) for kb in (10, 20, 40, 80, 160, 320)]
    rates = [
        Point(kb << 10, rate)
        for kb in (10, 40)
        for rate in (100, 300, 1_000, 3_000, 10_000, 30_000)
    ]
    rings = [
        Point(kb << 10, 3_000, 1 << ((kb << 10) * factor - 1).bit_length())
        for kb in (10, 40)
        for factor in (5, 10, 20, 50, 100, 200)
    ]
    points = tuple(dict.fromkeys([*sizes, *rates, *rings]))
    return Plan(points, 3, 0.8, 1.5, 0.5, 5.0, budget_s=3_600)


class Run(Benchmark):
    """One run of the benchmark: its peers, its clock and what it has found."""

    name = "ipc"
    description = "Compare the ring with Netty, a pipe, a Unix socket and ZeroMQ."
    quick_help = "the headline only, within 50 s"

    def __init__(self, options: Options, folder: Path, started: float) -> None:
        super().__init__(options, folder, started)
        self._plan = self.plan(quick_plan(), full_plan())
        self.results = Results()
        self._pairs: dict[str, Pair] = {}

    def measure(self) -> None:
        """Do all of the plan, or as much as there is time for."""
        for peer in dict.fromkeys(variant.peer for variant in VARIANTS):
            self._attempt(peer, self._launch)
        for peer in list(self._pairs):
            self._attempt(peer, lambda peer: self._pairs[peer].started())
        for variant in VARIANTS:
            self._step(variant, "warm up", self._warm_up)
        self._step(VARIANTS[0], "idle", self._idle)
        round_s = 0.0
        for number in range(self._plan.rounds):
            begun_s = self.elapsed_s()
            if begun_s + round_s > self._plan.budget_s:
                self.say(f"no time for round {number + 1} of {self._plan.rounds}")
                break
            self.say(f"round {number + 1} of {self._plan.rounds}")
            self._round(VARIANTS if number % 2 == 0 else VARIANTS[::-1])
            self.results.rounds += 1
            round_s = self.elapsed_s() - begun_s

    def _round(self, variants: Sequence[Variant]) -> None:
        for variant in variants:
            self._step(variant, "100 B at full speed", self._rate)
        for point in self._plan.points:
            for variant in variants:
                applies = variant.peer == "ring" or point.ring_bytes == DEFAULT_RING_BYTES
                if applies and not variant.rate_only:
                    self._step(variant, point.label, partial(self._latency, point))

    def _step(self, variant: Variant, what: str, step: Callable[[Variant], None]) -> None:
        if variant.peer in self._pairs and self.elapsed_s() < self._plan.budget_s + 2:
            self.say(f"{variant.label}: {what}")
            self._attempt(variant.peer, lambda _: step(variant))

    def _attempt(self, peer: str, step: Callable[[str], None]) -> None:
        """Do something with a transport; if that fails, go on without it."""
        try:
            step(peer)
        except PeerError as error:
            self.results.missing[peer] = str(error)
            self.say(f"{peer} is left out: {error}")
            if pair := self._pairs.pop(peer, None):
                pair.end()

    def _launch(self, peer: str) -> None:
        netty = peer == "netty"
        command = netty_command(self.folder) if netty else python_command(f"{peer}_peer")
        self._pairs[peer] = Pair(command, self.folder)

    def _warm_up(self, variant: Variant) -> None:
        messages = WARM_UP_MESSAGES.get(variant.peer, DEFAULT_WARM_UP_MESSAGES)
        self._pairs[variant.peer].warm_up(variant.mode, messages, DEFAULT_RING_BYTES)

    def _idle(self, variant: Variant) -> None:
        pair, seconds = self._pairs[variant.peer], self._plan.idle_s
        before = processor_ticks()
        percent = pair.idle_cpu_percent(variant.mode, seconds, DEFAULT_RING_BYTES)
        self.results.idle_cpu_percent = percent
        self.results.background_cpu_percent = background = busy_percent(before)
        self.warn_of_noise(background)

    def _rate(self, variant: Variant) -> None:
        pair, seconds = self._pairs[variant.peer], self._plan.rate_s
        rate = self.undisturbed(
            lambda: pair.rate(variant.mode, SMALL_BYTES, seconds, DEFAULT_RING_BYTES),
            until_s=self._plan.budget_s,
        )
        self.results.rates.setdefault(variant, []).append(rate)

    def _latency(self, point: Point, variant: Variant) -> None:
        slow = point.rate_per_s <= 100
        seconds = self._plan.slow_latency_s if slow else self._plan.latency_s
        pair = self._pairs[variant.peer]
        latency = self.undisturbed(
            lambda: pair.latency(
                variant.mode, point.size_bytes, point.rate_per_s, seconds, point.ring_bytes
            ),
            until_s=self._plan.budget_s,
        )
        self.results.latencies.setdefault((point, variant), []).append(latency)

    def end(self) -> None:
        """End all peers."""
        for pair in self._pairs.values():
            pair.end()

    def table(self) -> str:
        """Everything that was measured, as text."""
        return table(self.results, VARIANTS)

    def headline(self) -> dict[str, Any]:
        """The figures that matter most."""
        return headline(self.results, VARIANTS, self.elapsed_s())

    def document(self, figures: dict[str, Any]) -> dict[str, Any]:
        """Everything for the JSON file."""
        return document(self.results, VARIANTS, figures)

    def draw(self, path: Path) -> bool:
        """Write the figure."""
        from ipc_peers.figure import draw

        draw(self.results, VARIANTS, path)
        return True


if __name__ == "__main__":
    main(Run)
