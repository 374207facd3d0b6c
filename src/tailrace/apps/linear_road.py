"""Linear road: tolls that follow the traffic, and warnings of accidents.

The operators and selectivities are those of BriskStream's table: the dispatcher makes position
reports of 99 records in 100; average speed, last average speed and count vehicles give one record
for each that they get; accident detection and accident notification nearly none; toll notification
one for each report, each count and each last average speed, and nearly none for accidents. Unlike
there, the few requests for balances and past expenditures are answered.

A toll goes out at once. That there was an accident is known from other segments, and may come a
little later: then a `Waiver` follows.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

from tailrace import KeyedStream, Stream, Topology
from tailrace.apps.linear_road_operators import (
    Accident,
    AccidentNotice,
    AccountBalance,
    AverageSpeeds,
    CountVehicles,
    DetectAccidents,
    LastSpeeds,
    Toll,
    TollNotify,
    Waiver,
    daily_expenditure,
)
from tailrace.apps.linear_road_traffic import (
    BalanceRequest,
    ExpenditureRequest,
    Input,
    PositionReport,
    parse,
    traffic,
)
from tailrace.runtime.source import Source
from tailrace.sources import rate

POSITIONS, BALANCES, EXPENDITURES = "position_report", "balance_stream", "daily_exp_request"
_STREAM_OF: dict[type, str] = {
    PositionReport: POSITIONS,
    BalanceRequest: BALANCES,
    ExpenditureRequest: EXPENDITURES,
}


class Answers(NamedTuple):
    """The streams that leave the topology."""

    tolls: Stream
    """`Toll`s, and the `LastSpeed`s and `VehicleCount`s for the road's signs."""
    waivers: Stream
    accidents: Stream
    balances: Stream
    expenditures: Stream


def dispatch(record: Input) -> str:
    """The stream for a record."""
    return _STREAM_OF[type(record)]


def vehicle_of(record: Toll | Waiver | BalanceRequest) -> int:
    """Whose account it is."""
    return record.toll.vehicle if isinstance(record, Waiver) else record.vehicle


def is_charged(record: Any) -> bool:
    """Whether it is a toll that has to be paid."""
    return isinstance(record, Toll) and record.toll > 0


def warn(report: PositionReport, accident: Accident) -> AccidentNotice:
    """Tell a vehicle of an accident."""
    return AccidentNotice(report.time_s, report.vehicle, accident.segment)


def waive(toll: Toll, accident: Accident) -> Waiver:
    """Take a toll back."""
    return Waiver(toll, accident.segment)


def linear_road(source: Source, parallelism: int = 2) -> tuple[Topology, Answers]:
    """The topology, and what it answers.

    Parser and dispatcher stay with the source, so that the reports of a place stay in order.
    """
    topology = Topology("linear road")
    inputs = topology.source(source, name="traffic").map(parse, name="parse")
    dispatched = inputs.split(dispatch, _STREAM_OF.values(), name="dispatcher")
    time = attrgetter("time_s")
    reports = dispatched[POSITIONS].event_time(time, max_delay_s=0, name="event time")

    def by_place(stream: Stream) -> KeyedStream:
        return stream.key_by(attrgetter("place"))

    def by_place_and_minute(stream: Stream) -> KeyedStream:
        return stream.key_by(attrgetter("place", "minute"))

    def at(name: str) -> dict[str, Any]:
        return {"name": name, "parallelism": parallelism}

    averages = by_place(reports).process(AverageSpeeds(), **at("average speed"))
    speeds = by_place(averages).process(LastSpeeds(), **at("last average speed"))
    counts = by_place(reports).process(CountVehicles(), **at("count vehicles"))
    accidents = (
        by_place(reports).process(DetectAccidents(), **at("accident detection")).event_time(time)
    )

    def meeting_accidents(stream: Stream, function: Callable[..., Any], name: str) -> Stream:
        # An accident's time is the start of its minute, so no report of the minute is further away.
        accidents_too = by_place_and_minute(accidents)
        return by_place_and_minute(stream).join(
            accidents_too, within_s=60, function=function, **at(name)
        )

    notices = meeting_accidents(reports, warn, "accident notification")
    tolls = by_place(reports.merge(counts, speeds)).process(TollNotify(), **at("toll notification"))
    charged = tolls.filter(is_charged, name="charged").event_time(time)
    waivers = meeting_accidents(charged, waive, "waivers")
    balances = (
        charged.merge(waivers, dispatched[BALANCES])
        .key_by(vehicle_of)
        .process(AccountBalance(), **at("account balance"))
    )
    expenditures = dispatched[EXPENDITURES].map(daily_expenditure, **at("daily expenditure"))
    return topology, Answers(tolls, waivers, notices, balances, expenditures)


def topology(per_s: float = 10_000, seconds: float | None = None) -> Topology:
    """Ready to run: `tailrace run tailrace.apps.linear_road:topology`."""
    built, answers = linear_road(rate(per_s, traffic(), seconds=seconds))
    for name, stream in answers._asdict().items():
        stream.sink(lambda answer: None, name=f"{name} sink")
    return built
