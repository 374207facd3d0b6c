from collections import Counter
from typing import Any

import pytest

from tailrace.apps.linear_road import Answers, linear_road
from tailrace.apps.linear_road_expected import Expected, expected
from tailrace.apps.linear_road_operators import (
    AccidentNotice,
    Balance,
    LastSpeed,
    Toll,
    VehicleCount,
    affected,
)
from tailrace.apps.linear_road_traffic import BalanceRequest, parse, traffic
from tailrace.runtime.core import Limits
from tailrace.runtime.source import Source
from tailrace.sources import items, rate
from tailrace.testing import Report, collect, run
from tests.apps.running import first, on_workers


def line(time_s: int, vehicle: int, speed_mph: int, segment: int, offset_ft: int = 0) -> str:
    where = f"0,1,0,{segment},{segment * 5280 + offset_ft}"
    return f"0,{time_s},{vehicle},{speed_mph},{where},-1,-1,-1,-1,-1,-1"


def answers_of(
    source: Source, workers: int, seed: int, **options: Any
) -> tuple[dict[str, list[Any]], Report]:
    topology, answers = linear_road(source)
    collected = {name: collect(stream) for name, stream in answers._asdict().items()}
    return collected, run(topology, workers=workers, seed=seed, **options)


def check(found: dict[str, list[Any]], wanted: Expected) -> None:
    by_type = {
        kind: [one for one in found["tolls"] if type(one) is kind]
        for kind in (Toll, LastSpeed, VehicleCount)
    }
    assert Counter(by_type[Toll]) == Counter(wanted.tolls)
    assert Counter(by_type[LastSpeed]) == Counter(wanted.speeds)
    assert Counter(by_type[VehicleCount]) == Counter(wanted.counts)
    assert len(found["tolls"]) == sum(map(len, by_type.values()))
    assert Counter(found["waivers"]) == Counter(wanted.waivers)
    assert Counter(found["accidents"]) == Counter(wanted.accidents)
    assert Counter(found["expenditures"]) == Counter(wanted.expenditures)


@on_workers
def test_the_answers_are_those_of_the_plain_computation(workers: int, seed: int) -> None:
    records = first(traffic(seed, vehicles=400, minutes=8, accidents_per_minute=1), 6500)
    found, report = answers_of(items(records), workers, seed, limits=Limits(poll_records=50))
    wanted = expected(records)
    assert wanted.waivers
    check(found, wanted)
    assert report.late == dict.fromkeys(report.late, 0)
    asked = [parse(record) for record in records]
    requests = {record.query for record in asked if isinstance(record, BalanceRequest)}
    assert {balance.query for balance in found["balances"]} == requests


def test_traffic_has_jams_and_accidents() -> None:
    wanted = expected(first(traffic(vehicles=400, minutes=8, accidents_per_minute=1), 6000))
    assert any(toll.toll for toll in wanted.tolls)
    assert wanted.accidents
    assert wanted.waivers


def test_selectivities_are_those_of_the_table() -> None:
    records = first(traffic(6, vehicles=200), 8000)
    found, report = answers_of(items(records), 2, 0)
    seen = report.records_in
    reports = seen["event time"]
    assert 0.985 < reports / seen["dispatcher"] < 0.995
    assert seen["average speed"] == seen["last average speed"] == reports
    assert seen["count vehicles"] == seen["accident detection"] == reports
    assert seen["toll notification"] == 3 * reports
    assert len(found["tolls"]) == 3 * reports
    detected = seen["accident notification"] - reports
    assert 0 < detected < reports / 100
    assert 0 < len(found["accidents"]) < reports / 20


@pytest.mark.parametrize("workers", [1, 3])
def test_balances_are_exact_when_records_come_one_at_a_time(workers: int) -> None:
    records = first(traffic(3, vehicles=400, minutes=8, accidents_per_minute=1), 5000)
    found, _ = answers_of(rate(100, records), workers, 1)
    # All results of a record are there before the next one comes: the expected ones, up to each
    # request, are those of the lines before it.
    wanted = expected(records)
    waived = Counter(waiver.toll for waiver in wanted.waivers)
    owed: Counter[int] = Counter()
    balances = []
    tolls = iter(wanted.tolls)
    for record in map(parse, records):
        if isinstance(record, BalanceRequest):
            balances.append(Balance(record.query, record.vehicle, owed[record.vehicle]))
        elif hasattr(record, "speed_mph"):
            toll = next(tolls)
            owed[toll.vehicle] += toll.toll * (1 - waived[toll])
    assert Counter(found["balances"]) == Counter(balances)
    assert waived
    assert any(balance.tolls for balance in balances)


def test_an_accident_is_told_to_those_within_five_segments_in_the_minute_after() -> None:
    standing = [
        line(30 * n, vehicle, 0, 50, 100) for n in range(4) for vehicle in (1, 2)
    ]  # the fourth reports come at 90 s, in minute 1
    others = [
        line(110, 3, 60, 48),
        line(120, 4, 60, 45),
        line(120, 5, 60, 46),
        line(121, 6, 60, 50),
        line(121, 7, 60, 51),
        line(180, 8, 60, 50),
    ]
    found, _ = answers_of(items(standing + others), 2, 0)
    assert Counter(found["accidents"]) == Counter(
        [AccidentNotice(120, 5, 50), AccidentNotice(121, 6, 50)]
    )


def test_a_jam_costs() -> None:
    jam = [line(n, n, 10, 5) for n in range(60)]
    found, _ = answers_of(items([*jam, line(60, 99, 10, 5), line(61, 98, 10, 6)]), 2, 0)
    tolls = {one.vehicle: one.toll for one in found["tolls"] if isinstance(one, Toll)}
    assert tolls[99] == 2 * (60 - 50) ** 2
    assert tolls[98] == 0 == tolls[59]


def test_an_accident_counts_before_it_as_the_traffic_goes() -> None:
    assert affected((0, 0, 2)) == [(0, 0, 2), (0, 0, 1), (0, 0, 0)]
    assert affected((0, 1, 50)) == [(0, 1, n) for n in (50, 51, 52, 53, 54)]


def test_unknown_input_is_refused() -> None:
    with pytest.raises(ValueError, match="the kind of input is 4; it must be 0, 2 or 3"):
        parse("4,61,7,-1,-1,-1,-1,-1,-1,3,-1,-1,-1,-1,-1")


def test_when_all_begins_anew_time_goes_on() -> None:
    make = traffic(vehicles=10, minutes=1)
    times_s = [parse(make(i)).time_s for i in range(100)]
    assert times_s == sorted(times_s)
    assert times_s[-1] > 120


def test_answers_are_named() -> None:
    assert Answers._fields == ("tolls", "waivers", "accidents", "balances", "expenditures")
