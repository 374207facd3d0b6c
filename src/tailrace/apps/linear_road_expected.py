"""Linear road in plain Python, over all of the input at once: what the answers have to be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from tailrace.apps.linear_road_operators import (
    AccidentNotice,
    Expenditure,
    LastSpeed,
    Toll,
    VehicleCount,
    Waiver,
    daily_expenditure,
)
from tailrace.apps.linear_road_traffic import (
    ExpenditureRequest,
    Place,
    PositionReport,
    parse,
)


class Expected(NamedTuple):
    """All in any order. Balances are not there: they depend on when they are asked for."""

    tolls: list[Toll]
    speeds: list[LastSpeed]
    counts: list[VehicleCount]
    waivers: list[Waiver]
    accidents: list[AccidentNotice]
    expenditures: list[Expenditure]


def expected(lines: Iterable[str]) -> Expected:
    """The answers to all lines."""
    inputs = [parse(line) for line in lines]
    reports = [record for record in inputs if isinstance(record, PositionReport)]
    speeds_mph: dict[tuple[Place, int], list[int]] = defaultdict(list)
    present: dict[tuple[Place, int], set[int]] = defaultdict(set)
    for report in reports:
        speeds_mph[report.place, report.minute].append(report.speed_mph)
        present[report.place, report.minute].add(report.vehicle)
    accidents = _accidents(reports)
    found = Expected([], [], [], [], [], [])
    for report in reports:
        place, minute = report.place, report.minute
        minutes = [speeds_mph.get((place, m), []) for m in range(minute - 5, minute)]
        averages = [sum(mph) / len(mph) for mph in minutes if mph]
        last_mph = sum(averages) / len(averages) if averages else None
        vehicles = len(present.get((place, minute - 1), ()))
        congested = last_mph is not None and last_mph < 40 and vehicles > 50
        toll = Toll(
            report.time_s, report.vehicle, place, 2 * (vehicles - 50) ** 2 if congested else 0
        )
        found.tolls.append(toll)
        found.speeds.append(LastSpeed(place, minute, last_mph))
        found.counts.append(VehicleCount(place, minute, vehicles))
        expressway, direction, segment = place
        for away in range(5):
            there = segment - away if direction else segment + away
            if ((expressway, direction, there), minute - 1) in accidents:
                found.accidents.append(AccidentNotice(report.time_s, report.vehicle, there))
                if toll.toll:
                    found.waivers.append(Waiver(toll, there))
    requests = [record for record in inputs if isinstance(record, ExpenditureRequest)]
    found.expenditures.extend(map(daily_expenditure, requests))
    return found


def _accidents(reports: list[PositionReport]) -> set[tuple[Place, int]]:
    """The places and minutes in which two vehicles had sent their last four reports from a spot."""
    history: dict[int, list[PositionReport]] = defaultdict(list)
    accidents = set()
    for report in reports:
        history[report.vehicle].append(report)
        if not _stands(history[report.vehicle]):
            continue
        for vehicle, theirs in history.items():
            if (
                vehicle != report.vehicle
                and _spot(theirs[-1]) == _spot(report)
                and report.time_s - theirs[-1].time_s < 30
                and _stands(theirs)
            ):
                accidents.add((report.place, report.minute))
    return accidents


def _spot(report: PositionReport) -> tuple[int, ...]:
    return report.expressway, report.direction, report.lane, report.position_ft


def _stands(reports: list[PositionReport]) -> bool:
    return len(reports) >= 4 and len(set(map(_spot, reports[-4:]))) == 1
