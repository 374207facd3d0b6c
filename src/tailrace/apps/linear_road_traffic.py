"""What linear road reads: position reports and requests, as text, and the traffic they come from.

An expressway has 100 segments of a mile in each direction. Every vehicle reports every 30 seconds
where it is and how fast; one record in a hundred asks for an account balance or for the tolls of a
day in the past.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

SEGMENTS = 100
SEGMENT_FEET = 5280
REPORT_EVERY_S = 30
FEET_PER_MPH = SEGMENT_FEET * REPORT_EVERY_S // 3600
"""How far one mile per hour leads until the next report."""
REQUESTS = 0.005
"""Of each of the two kinds, per report."""
DAYS = 69

Place = tuple[int, int, int]
"""Expressway, direction (0: to higher segments, 1: to lower ones), segment."""


class PositionReport(NamedTuple):
    """Where a vehicle is, and how fast."""

    time_s: int
    vehicle: int
    speed_mph: int
    expressway: int
    lane: int
    direction: int
    segment: int
    position_ft: int

    @property
    def place(self) -> Place:
        """The segment, of all expressways and directions."""
        return self.expressway, self.direction, self.segment

    @property
    def minute(self) -> int:
        """Statistics are by the minute."""
        return self.time_s // 60


class BalanceRequest(NamedTuple):
    """How much does a vehicle owe today?"""

    time_s: int
    vehicle: int
    query: int


class ExpenditureRequest(NamedTuple):
    """How much did a vehicle pay on an expressway on some day in the past?"""

    time_s: int
    vehicle: int
    query: int
    expressway: int
    day: int


Input = PositionReport | BalanceRequest | ExpenditureRequest


def parse(line: str) -> Input:
    """One of the inputs from its 15 fields, of which the first says which, as the benchmark has it.

    >>> parse("2,61,7,-1,-1,-1,-1,-1,-1,3,-1,-1,-1,-1,-1")
    BalanceRequest(time_s=61, vehicle=7, query=3)
    """
    kind, time_s, vehicle, speed_mph, *others = map(int, line.split(","))
    expressway, lane, direction, segment, position_ft, query, *_, day = others
    if kind == 0:
        return PositionReport(
            time_s, vehicle, speed_mph, expressway, lane, direction, segment, position_ft
        )
    if kind == 2:
        return BalanceRequest(time_s, vehicle, query)
    if kind == 3:
        return ExpenditureRequest(time_s, vehicle, query, expressway, day)
    raise ValueError(f"the kind of input is {kind}; it must be 0, 2 or 3 (in {line!r})")


class _Vehicle:
    def __init__(self, number: int, expressway: int, direction: int, position_ft: int) -> None:
        self.number = number
        self.expressway = expressway
        self.direction = direction
        self.position_ft = position_ft
        self.lane = 1 + number % 3
        self.speed_mph = 0
        self.stopped_rounds = 0

    def move(self, slowly: bool, chance: random.Random) -> None:
        if self.stopped_rounds:
            self.stopped_rounds -= 1
            self.speed_mph = 0
            return
        self.speed_mph = chance.randint(2, 12) if slowly else chance.randint(50, 75)
        way_ft = self.speed_mph * FEET_PER_MPH * (-1 if self.direction else 1)
        self.position_ft = (self.position_ft + way_ft) % (SEGMENTS * SEGMENT_FEET)

    def report(self, time_s: int) -> tuple[int, int, str]:
        segment = self.position_ft // SEGMENT_FEET
        where = f"{self.expressway},{self.lane},{self.direction},{segment},{self.position_ft}"
        return 0, time_s, f"{self.number},{self.speed_mph},{where},-1,-1,-1,-1,-1,-1"


def traffic(
    seed: int = 0,
    *,
    expressways: int = 1,
    vehicles: int = 1000,
    minutes: int = 20,
    accidents_per_minute: float = 0.05,
) -> Callable[[int], str]:
    """The i-th line, in the order of time. After so many minutes all begins anew, time goes on.

    Each direction of each expressway has a jam of two segments, where most vehicles are. In an
    accident a vehicle and the next one of its direction stand still for four minutes.
    """
    chance = random.Random(seed)
    jams = {(x, d): chance.randrange(10, 90) for x in range(expressways) for d in (0, 1)}
    roads = [chance.choice(list(jams)) for _ in range(vehicles)]
    everyone = []
    for number, road in enumerate(roads):
        jammed = chance.random() < 0.7
        segment = jams[road] + chance.randrange(2) if jammed else chance.randrange(SEGMENTS)
        position_ft = segment * SEGMENT_FEET + chance.randrange(SEGMENT_FEET)
        everyone.append(_Vehicle(number, *road, position_ft))
    prepared: list[tuple[int, int, str]] = []
    for round_number in range(minutes * 60 // REPORT_EVERY_S):
        if chance.random() < accidents_per_minute * REPORT_EVERY_S / 60:
            _crash(everyone, chance)
        for vehicle in everyone:
            jam = jams[vehicle.expressway, vehicle.direction]
            vehicle.move(jam <= vehicle.position_ft // SEGMENT_FEET < jam + 2, chance)
            within_s = vehicle.number * REPORT_EVERY_S // vehicles
            time_s = round_number * REPORT_EVERY_S + within_s
            prepared.append(vehicle.report(time_s))
            for kind in (2, 3):
                if chance.random() < REQUESTS:
                    prepared.append(_request(kind, time_s, vehicle, len(prepared), chance))
    length_s = minutes * 60

    def make(i: int) -> str:
        times, which = divmod(i, len(prepared))
        kind, time_s, rest = prepared[which]
        return f"{kind},{time_s + times * length_s},{rest}"

    return make


def _crash(everyone: list[_Vehicle], chance: random.Random) -> None:
    first = chance.choice(everyone)
    road = first.expressway, first.direction
    behind = [v for v in everyone if (v.expressway, v.direction) == road and v is not first]
    if not behind:
        return
    second = min(behind, key=lambda vehicle: abs(vehicle.position_ft - first.position_ft))
    second.position_ft, second.lane = first.position_ft, first.lane
    first.stopped_rounds = second.stopped_rounds = 4 * 60 // REPORT_EVERY_S


def _request(
    kind: int, time_s: int, vehicle: _Vehicle, query: int, chance: random.Random
) -> tuple[int, int, str]:
    expressway, day = (vehicle.expressway, chance.randint(1, DAYS)) if kind == 3 else (-1, -1)
    rest = f"{vehicle.number},-1,{expressway},-1,-1,-1,-1,{query},-1,-1,-1,-1,{day}"
    return kind, time_s, rest
