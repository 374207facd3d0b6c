"""What linear road does with position reports: statistics of segments, accidents, tolls.

All state is by place, or by vehicle for balances. Results depend on the order of the reports of
one place alone, never on how streams happen to meet: where they come together, an operator waits
until it has what it needs, or the meeting is a join in event time.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from tailrace.apps.linear_road_traffic import (
    REPORT_EVERY_S,
    SEGMENTS,
    BalanceRequest,
    ExpenditureRequest,
    Place,
    PositionReport,
)
from tailrace.runtime.process import Operator

STOPPED_REPORTS = 4
"""So many reports from one spot in a row, and a vehicle has stopped."""
AFFECTED_SEGMENTS = 5
"""An accident counts in its own segment and in those before it."""
MINUTES_OF_SPEED = 5
JAM_MPH = 40
FREE_VEHICLES = 50


class AverageSpeed(NamedTuple):
    """Of the reports from a place in a minute, so far."""

    place: Place
    minute: int
    speed_mph: float


class LastSpeed(NamedTuple):
    """The average speed at a place in the five minutes before; None: nobody was there."""

    place: Place
    minute: int
    speed_mph: float | None


class VehicleCount(NamedTuple):
    """How many vehicles were at a place in the minute before."""

    place: Place
    minute: int
    vehicles: int


class Accident(NamedTuple):
    """There was one in the minute before, at a place or not far after it."""

    place: Place
    minute: int
    segment: int

    @property
    def time_s(self) -> int:
        """From when on it counts."""
        return self.minute * 60


class Toll(NamedTuple):
    """What a vehicle is charged."""

    time_s: int
    vehicle: int
    place: Place
    toll: int

    @property
    def minute(self) -> int:
        """Of the report that it is for."""
        return self.time_s // 60


class Waiver(NamedTuple):
    """A toll that is not due, because of an accident."""

    toll: Toll
    segment: int


class AccidentNotice(NamedTuple):
    """What a vehicle is told about an accident ahead."""

    time_s: int
    vehicle: int
    segment: int


class Balance(NamedTuple):
    """The answer to a BalanceRequest."""

    query: int
    vehicle: int
    tolls: int


class Expenditure(NamedTuple):
    """The answer to an ExpenditureRequest."""

    query: int
    vehicle: int
    tolls: int


def toll_of(speed_mph: float | None, vehicles: int) -> int:
    """Congested segments cost, and the more so the more vehicles there are."""
    if speed_mph is None or speed_mph >= JAM_MPH or vehicles <= FREE_VEHICLES:
        return 0
    return 2 * (vehicles - FREE_VEHICLES) ** 2


class AverageSpeeds(Operator):
    """Average speed: of a place in the current minute, after each report."""

    def process(self, record: PositionReport) -> None:
        """Add a report."""
        minute, total_mph, reports = self.state or (record.minute, 0, 0)
        if minute != record.minute:
            minute, total_mph, reports = record.minute, 0, 0
        total_mph += record.speed_mph
        reports += 1
        self.state = minute, total_mph, reports
        self.emit(AverageSpeed(record.place, minute, total_mph / reports))


class LastSpeeds(Operator):
    """Last average speed: keeps the averages of a place's last minutes."""

    def process(self, record: AverageSpeed) -> None:
        """Replace the current minute's average, and give that of those before."""
        averages = self.state or {}
        averages[record.minute] = record.speed_mph
        oldest = record.minute - MINUTES_OF_SPEED
        self.state = averages = {m: mph for m, mph in averages.items() if m >= oldest}
        before = [mph for minute, mph in averages.items() if minute < record.minute]
        speed_mph = sum(before) / len(before) if before else None
        self.emit(LastSpeed(record.place, record.minute, speed_mph))


class CountVehicles(Operator):
    """Count vehicles: keeps who was at a place in this minute, and how many in the one before."""

    def process(self, record: PositionReport) -> None:
        """Note the vehicle."""
        minute, present, before = self.state or (record.minute, set[int](), 0)
        if minute != record.minute:
            before = len(present) if minute == record.minute - 1 else 0
            minute, present = record.minute, set()
        present.add(record.vehicle)
        self.state = minute, present, before
        self.emit(VehicleCount(record.place, minute, before))


class _Standing(NamedTuple):
    """A vehicle, as last seen at a place."""

    spot: tuple[int, int]
    reports: int
    time_s: int


class DetectAccidents(Operator):
    """Accident detection: two vehicles that have stopped at one spot of a place.

    It is announced once per minute in which it is seen, to all places where it counts.
    """

    def process(self, record: PositionReport) -> None:
        """See whether the vehicle has stopped, and beside whom."""
        minute, announced, vehicles = self.state or (record.minute, -1, dict[int, _Standing]())
        if minute != record.minute:
            recent_s = record.time_s - REPORT_EVERY_S
            vehicles = {v: seen for v, seen in vehicles.items() if seen.time_s >= recent_s}
        spot = record.lane, record.position_ft
        before = vehicles.get(record.vehicle)
        reports = 1
        if (
            before is not None
            and before.spot == spot
            and record.time_s - before.time_s <= REPORT_EVERY_S
        ):
            reports += before.reports
        vehicles[record.vehicle] = _Standing(spot, reports, record.time_s)
        if (
            reports >= STOPPED_REPORTS
            and announced != record.minute
            and any(
                other != record.vehicle
                and seen.spot == spot
                and seen.reports >= STOPPED_REPORTS
                and record.time_s - seen.time_s < REPORT_EVERY_S
                for other, seen in vehicles.items()
            )
        ):
            announced = record.minute
            for place in affected(record.place):
                self.emit(Accident(place, record.minute + 1, record.segment))
        self.state = record.minute, announced, vehicles


def affected(place: Place) -> list[Place]:
    """Where an accident counts: its own segment and four before it, as the traffic goes."""
    expressway, direction, segment = place
    back = 1 if direction else -1
    segments = (segment + back * n for n in range(AFFECTED_SEGMENTS))
    return [(expressway, direction, s) for s in segments if 0 <= s < SEGMENTS]


class _Tariff:
    """What is known of a place in a minute, and who waits for more."""

    def __init__(self) -> None:
        self.speed: LastSpeed | None = None
        self.count: VehicleCount | None = None
        self.waiting: list[PositionReport] = []


class TollNotify(Operator):
    """Toll notification: a toll for every report; speeds and counts go on to the road's signs.

    A report may be here before the statistics of its minute, and then waits: they come, for it
    has made them come. A minute is forgotten when a later one has begun and nobody waits.
    """

    def process(self, record: PositionReport | LastSpeed | VehicleCount) -> None:
        """Take a report, or statistics."""
        reported, tariffs = self.state or (-1, dict[int, _Tariff]())
        tariff = tariffs.get(record.minute)
        if isinstance(record, PositionReport):
            if record.minute > reported:
                tariffs = {m: t for m, t in tariffs.items() if m >= record.minute or t.waiting}
            reported = max(reported, record.minute)
        else:
            self.emit(record)
        if tariff is None and record.minute >= reported:
            tariff = tariffs[record.minute] = _Tariff()
        if tariff is not None:
            self._learn(tariff, record)
            if not tariff.waiting and record.minute < reported:
                tariffs.pop(record.minute, None)
        self.state = reported, tariffs

    def _learn(self, tariff: _Tariff, record: PositionReport | LastSpeed | VehicleCount) -> None:
        if isinstance(record, PositionReport):
            tariff.waiting.append(record)
        elif isinstance(record, LastSpeed):
            tariff.speed = record
        else:
            tariff.count = record
        if tariff.speed is not None and tariff.count is not None:
            toll = toll_of(tariff.speed.speed_mph, tariff.count.vehicles)
            for report in tariff.waiting:
                self.emit(Toll(report.time_s, report.vehicle, report.place, toll))
            tariff.waiting = []


class AccountBalance(Operator):
    """Account balance: what a vehicle owes, by the tolls and waivers that have come so far."""

    def process(self, record: Toll | Waiver | BalanceRequest) -> None:
        """Charge, or answer."""
        owed = self.state or 0
        if isinstance(record, Toll):
            self.state = owed + record.toll
        elif isinstance(record, Waiver):
            self.state = owed - record.toll.toll
        else:
            self.emit(Balance(record.query, record.vehicle, owed))


def daily_expenditure(request: ExpenditureRequest) -> Expenditure:
    """Look up the past. Its table of tolls is made up, but always the same."""
    paid = zlib.crc32(f"{request.vehicle} {request.expressway} {request.day}".encode()) % 100
    return Expenditure(request.query, request.vehicle, paid)
