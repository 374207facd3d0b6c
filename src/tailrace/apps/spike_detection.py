"""Spike detection: sensors whose value jumps more than 3 % above its moving average.

All operators have a selectivity of one, as in BriskStream: every reading gives a signal, which
says whether it was a spike.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import NamedTuple

from tailrace import Stream, Topology
from tailrace.runtime.process import Operator
from tailrace.runtime.source import Source
from tailrace.sources import rate

DEVICES = 54
WINDOW = 1000
"""The readings of a device that its average is of."""
THRESHOLD = 1.03
SPIKES = 0.01


def readings(seed: int = 0, devices: int = DEVICES, distinct: int = 50_000) -> Callable[[int], str]:
    """The i-th reading as text: number, device, degrees. Devices take turns.

    Temperatures wander around 20 degrees, and one in a hundred is a tenth higher. They repeat
    after `distinct`.
    """
    chance = random.Random(seed)
    degrees = [chance.uniform(15, 25) for _ in range(devices)]
    prepared = []
    for i in range(distinct):
        now = degrees[i % devices]
        degrees[i % devices] = now + chance.gauss(0, 0.02) + (20 - now) * 0.001
        prepared.append(now * 1.1 if chance.random() < SPIKES else now)
    return lambda i: f"{i},{i % devices},{prepared[i % distinct]:.3f}"


class Reading(NamedTuple):
    """What a device measured."""

    number: int
    device: int
    millidegrees: int


class Averaged(NamedTuple):
    """A reading, and the average of its device's last ones, itself included."""

    number: int
    device: int
    millidegrees: int
    average_millidegrees: float


class Signal(NamedTuple):
    """Whether a reading was a spike."""

    number: int
    device: int
    spike: bool


def parse(line: str) -> Reading:
    """A reading from its text. In whole thousandths, so that sums of it are exact."""
    number, device, degrees = line.split(",")
    return Reading(int(number), int(device), round(float(degrees) * 1000))


class MovingAverage(Operator):
    """Keeps a device's last readings and their sum."""

    def __init__(self, window: int = WINDOW) -> None:
        self.window = window

    def process(self, record: Reading) -> None:
        """Add the average to a reading."""
        values, total = self.state or (deque[int](), 0)
        values.append(record.millidegrees)
        total += record.millidegrees
        if len(values) > self.window:
            total -= values.popleft()
        self.state = values, total
        self.emit(Averaged(*record, total / len(values)))


def detect(averaged: Averaged) -> Signal:
    """Compare a reading with the average."""
    spike = averaged.millidegrees > THRESHOLD * averaged.average_millidegrees
    return Signal(averaged.number, averaged.device, spike)


def spike_detection(
    source: Source, parallelism: int = 2, window: int = WINDOW
) -> tuple[Topology, Stream]:
    """The topology, and its stream of a `Signal` for every reading.

    The parser stays with its source, so that a device's readings stay in order.
    """
    topology = Topology("spike detection")
    parsed = topology.source(source, name="readings").map(parse, name="parse")
    averaged = parsed.key_by(attrgetter("device")).process(
        MovingAverage(window), name="moving average", parallelism=parallelism
    )
    return topology, averaged.shuffle().map(detect, name="detect")


def expected(lines: Iterable[str], window: int = WINDOW) -> list[Signal]:
    """The same in plain Python, in any order."""
    signals = []
    history: dict[int, list[int]] = {}
    for line in lines:
        number, device, degrees = line.split(",")
        values = history.setdefault(int(device), [])
        values.append(round(float(degrees) * 1000))
        last = values[-window:]
        spike = values[-1] > THRESHOLD * (sum(last) / len(last))
        signals.append(Signal(int(number), int(device), spike))
    return signals


def topology(per_s: float = 10_000, seconds: float | None = None) -> Topology:
    """Ready to run: `tailrace run tailrace.apps.spike_detection:topology`."""
    built, signals = spike_detection(rate(per_s, readings(), seconds=seconds))
    signals.sink(lambda signal: None, name="sink")
    return built
