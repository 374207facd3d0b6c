"""The profile of a topology: what each operator costs and does, measured on a sample.

Much as BriskStream does it: each operator by itself, on input that the operators before it have
made of what the sources give. All in this process, without Spark. Unlike there, the operators take
turns, poll by poll: input that has just been made is in the cache, as it is in a worker, and the
memory of what was done with is used again.

What a sample cannot show is not in the times: coroutines of an async map, which run beside the
loop, and timers of the clock. What windows make when the sample ends counts as their output.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Protocol

from tailrace.graph.model import Graph, Operator, Rule, Stream
from tailrace.graph.validate import order
from tailrace.plan.model.machine import PROFILED_RECEIVERS, Jumbo
from tailrace.plan.model.profile import (
    DEFAULT_RECORD_BYTES,
    OperatorProfile,
    Profile,
    Work,
    input_key,
    stream_key,
)
from tailrace.planner.codec import CodecTimes
from tailrace.planner.station import DEALT, Batch, Carried, Station, Stopwatch, Timed
from tailrace.planner.yardstick import Yardstick, full_speed_ns
from tailrace.runtime.garbage import collected_rarely

PERCENTILES = (5, 25, 50, 75, 95, 99)
_STRETCH_RECORDS = 1000
_STRETCHES = 16
"""If there are few records, shorter ones, so that there are so many."""
_WARMING = 4
"""One part in so many, the first, is for states to fill and caches to warm: it is not timed."""
_GAUGING_S = 0.05
"""For what the yardstick takes at the speed that all times are given for."""


class HasGraph(Protocol):
    """A topology."""

    @property
    def graph(self) -> Graph:
        """It as data."""
        ...


def profile(
    topology: HasGraph | Graph,
    *,
    sample: int = 20_000,
    seconds: float = 10.0,
    run_sinks: bool = False,
) -> Profile:
    """Measure every operator of a topology on so many records of each source.

    Takes at most about `seconds`. Sources are really read, without waiting for when records are
    due; operators really run, whatever they do. Sinks do nothing, and cost as much, unless
    `run_sinks`.

    Times are CPU time per record in batches of 256 from a source, about what the engine makes under
    load, its own work for a step included, when the first quarter of the sample has filled states
    and warmed caches. The median counts, unless another percentile is chosen by `Profile.at`.
    Percentiles are over stretches of about a thousand records, so that work that comes now and
    then, when a window closes, is in the median, and what others do on this machine is not. They
    are for one speed of the core, as found at the beginning, however much it changes meanwhile
    (`yardstick`).
    """
    graph = topology if isinstance(topology, Graph) else topology.graph
    into = {o.name: _numbers(graph, graph.into(o.name)) for o in graph.operators}
    out_of = {o.name: _numbers(graph, graph.out_of(o.name)) for o in graph.operators}
    with ExitStack() as stack:
        stack.enter_context(collected_rarely())
        yardstick = Yardstick(full_speed_ns(_GAUGING_S))
        watch = stack.enter_context(Stopwatch(yardstick))
        stations: dict[str, Station] = {}
        for name in order(graph):
            stations[name] = Station(
                graph.operator(name),
                [graph.streams[s] for s in into[name]],
                [graph.streams[s] for s in out_of[name]],
                watch,
                run_sinks=run_sinks,
            )
            stack.callback(stations[name].close)
        _run(graph, stations, into, out_of, sample, seconds)
    sizes = {
        name: _coded([graph.streams[s] for s in out_of[name]], station.carried)
        for name, station in stations.items()
    }
    profiles = {
        name: _operator_profile(
            graph.operator(name),
            [graph.streams[s] for s in into[name]],
            [graph.streams[s] for s in out_of[name]],
            stations[name],
            sizes,
        )
        for name in stations
    }
    remarks = [
        f"{name!r} got no records and counts as free"
        for name, station in stations.items()
        if not any(timed.records for timed in station.timed)
    ]
    if not run_sinks:
        remarks.append("sinks were not run")
    emitted = {
        o.name: sum(timed.records for timed in stations[o.name].timed)
        for o in graph.operators
        if o.is_source
    }
    measured = ", ".join(f"{count} records of {name!r}" for name, count in emitted.items())
    note = "; ".join([f"measured on {measured}", *remarks])
    return Profile(profiles, note, round(yardstick.base_ns, 1))


def _run(
    graph: Graph,
    stations: Mapping[str, Station],
    into: Mapping[str, list[int]],
    out_of: Mapping[str, list[int]],
    sample: int,
    seconds: float,
) -> None:
    """Poll the sources and pass on what comes, poll by poll; in the end let all finish."""
    deadline_s = time.monotonic() + seconds
    sources = {operator.name for operator in graph.operators if operator.is_source}

    def wanted(name: str) -> bool:
        station = stations[name]
        return not station.ended and sum(timed.records for timed in station.timed) < sample

    ending = False
    while not ending:
        ending = not any(map(wanted, sources)) or time.monotonic() > deadline_s
        carried: dict[int, Batch] = {}
        for name, station in stations.items():
            if name in sources:
                polled = not ending and wanted(name)
                batches = station.poll() if polled else [Batch() for _ in out_of[name]]
            else:
                inputs = [carried.pop(s) for s in into[name]]
                batches = station.feed(inputs, deadline_s)
            if ending and name not in sources:
                for batch, last in zip(batches, station.finish(deadline_s + 1), strict=True):
                    batch.parts += last.parts
            carried.update(zip(out_of[name], batches, strict=True))


def _numbers(graph: Graph, streams: Iterable[Stream]) -> list[int]:
    """Where streams stand in the graph; equal ones are still two."""
    wanted = {id(stream) for stream in streams}
    return [s for s, stream in enumerate(graph.streams) if id(stream) in wanted]


def _operator_profile(
    operator: Operator,
    entering: Sequence[Stream],
    leaving: Sequence[Stream],
    station: Station,
    sizes: Mapping[str, Mapping[str, CodecTimes]],
) -> OperatorProfile:
    coded = sizes[operator.name]
    records = sum(timed.records for timed in station.timed)
    # Watermarks come with some batches only, and from inputs that carry little else.
    spread_ns = sum(timed.spread_ns for timed in station.timed) / max(records, 1)

    def size_of(stream: Stream) -> float:
        found = sizes[stream.source].get(stream.output)
        return found.record_bytes if found else DEFAULT_RECORD_BYTES

    timings: dict[str, list[tuple[Timed, float]]] = {}
    for timed, stream in zip(station.timed, entering, strict=False):
        timings.setdefault(input_key(stream), []).append((timed, size_of(stream)))
    read = sum(timed.records * size for of in timings.values() for timed, size in of)
    by_input = {}
    if len(timings) > 1:
        by_input = {
            name: _work([timed for timed, _ in of], spread_ns, of[0][1], coded)
            for name, of in timings.items()
        }
    return OperatorProfile(
        _work(station.timed, spread_ns, read / max(records, 1), coded),
        {output: round(times.record_bytes, 1) for output, times in coded.items()},
        by_input,
        _jumbos(leaving, station.carried, coded),
        {
            stream_key(stream): round(median(carried.deal_ns), 1)
            for stream, carried in zip(leaving, station.carried, strict=True)
            if carried.deal_ns
        },
    )


def _work(
    timed: Sequence[Timed],
    spread_ns: float,
    read_bytes: float,
    coded: Mapping[str, CodecTimes],
) -> Work:
    records = sum(one.records for one in timed)
    if not records:
        return Work(0.0, dict.fromkeys(coded, 0.0))
    made: dict[str, float] = {}
    for one in timed:
        for output, count in one.made.items():
            made[output] = made.get(output, 0) + count
    selectivity = {output: count / records for output, count in made.items()}
    length = min(_STRETCH_RECORDS, records / _STRETCHES)
    stretches = sorted(
        part
        for one in timed
        for part in in_stretches(one.batches[len(one.batches) // _WARMING :], length)
    )
    percentiles = {
        percent: round(ns + spread_ns, 1)
        for percent, ns in zip(PERCENTILES, weighted(stretches, PERCENTILES), strict=True)
    }
    written = sum(
        share * coded[output].record_bytes
        for output, share in selectivity.items()
        if output in coded
    )
    return Work(percentiles[50], selectivity, round(read_bytes + written, 1), percentiles)


def in_stretches(batches: Sequence[tuple[float, int]], length: float) -> list[tuple[float, int]]:
    """Batches (time per record, records) in a row together, until there are enough records.

    >>> in_stretches([(1.0, 2), (3.0, 2), (5.0, 4), (9.0, 1)], 4)
    [(2.0, 4), (5.0, 4), (9.0, 1)]
    """
    found = []
    total, records = 0.0, 0
    for i, (value, count) in enumerate(batches, 1):
        total += value * count
        records += count
        if records >= length or i == len(batches):
            found.append((total / records, records))
            total, records = 0.0, 0
    return found


def weighted(batches: Sequence[tuple[float, int]], percents: Sequence[int]) -> list[float]:
    """Percentiles of sorted (value, weight) pairs.

    >>> weighted([(1.0, 1), (5.0, 98), (9.0, 1)], [1, 50, 100])
    [1.0, 5.0, 9.0]
    """
    total = sum(weight for _, weight in batches)
    found = []
    for percent in percents:
        below = 0
        for value, weight in batches:
            below += weight
            if below * 100 >= percent * total:
                found.append(value)
                break
    return found


def _coded(leaving: Sequence[Stream], carried: Sequence[Carried]) -> dict[str, CodecTimes]:
    """Size and codec times of each output that gave records."""
    return {
        stream.output: CodecTimes(
            median(times.encode_ns for times in one.coded),
            median(times.decode_ns for times in one.coded),
            sum(times.record_bytes for times in one.coded) / len(one.coded),
        )
        for stream, one in zip(leaving, carried, strict=True)
        if one.coded
    }


def _jumbos(
    leaving: Sequence[Stream], carried: Sequence[Carried], coded: Mapping[str, CodecTimes]
) -> dict[str, Jumbo]:
    """How records travel: how many in a message if the stream has two receivers."""
    found: dict[str, Jumbo] = {}
    for stream, one in zip(leaving, carried, strict=True):
        times = coded.get(stream.output)
        if times is None or not one.parts:
            continue
        whole = stream.grouping.rule in (*DEALT, Rule.ALL, Rule.GLOBAL)
        records = one.records / one.parts / (1 if whole else PROFILED_RECEIVERS)
        found[stream_key(stream)] = Jumbo(
            round(times.encode_ns, 1), round(times.decode_ns, 1), round(max(records, 1.0), 1)
        )
    return found
