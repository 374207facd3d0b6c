"""The profile of a topology: what each operator costs and does, measured on a sample.

As BriskStream does it: one operator after the other, each alone, on input that the operators before
it have made of what the sources give. All in this process, without Spark.

What a sample cannot show is not in the times: coroutines of an async map, which run beside the
loop, and timers of the clock. What windows make when the sample ends counts as their output.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from tailrace.graph.model import Graph, Operator, Rule, Stream
from tailrace.graph.validate import order
from tailrace.measure.alone import DEALT, RECEIVERS, Alone, Rounds, Timed, run_operator, run_source
from tailrace.measure.codec import CodecTimes, measure_codec
from tailrace.plan.machine import Jumbo
from tailrace.plan.profile import DEFAULT_RECORD_BYTES, OperatorProfile, Profile, Work, origin
from tailrace.transport.codec import CodecError

PERCENTILES = (5, 25, 50, 75, 95, 99)
_CODED_JUMBOS = 20
_STRETCH_RECORDS = 1000
_STRETCHES = 16
"""If there are few records, shorter ones, so that there are so many."""


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
    seconds: float = 2.0,
    run_sinks: bool = False,
) -> Profile:
    """Measure every operator of a topology on so many records of each source.

    Takes at most about `seconds` for each operator. Sources are really read, without waiting for
    when records are due; operators really run, whatever they do. Sinks do nothing, and cost as
    much, unless `run_sinks`.

    Times are CPU time per record in the batches that the engine makes under load, its own work for
    a step included. The median counts, unless another percentile is chosen by `Profile.at`.
    Percentiles are over stretches of about a thousand records, so that work that comes now and
    then, when a window closes, is in the median, and what others do on this machine is not.
    """
    graph = topology if isinstance(topology, Graph) else topology.graph
    carried: dict[int, Rounds] = {}
    sizes: dict[str, Mapping[str, CodecTimes]] = {}
    profiles: dict[str, OperatorProfile] = {}
    remarks = []
    for name in order(graph):
        operator = graph.operator(name)
        into, out_of = _numbers(graph, graph.into(name)), _numbers(graph, graph.out_of(name))
        entering = [graph.streams[s] for s in into]
        leaving = [graph.streams[s] for s in out_of]
        if operator.is_source:
            run = run_source(operator, leaving, sample, seconds)
        else:
            inputs = [carried.pop(s) for s in into]
            run = run_operator(operator, entering, leaving, inputs, seconds, run_sinks=run_sinks)
        carried.update(zip(out_of, run.carried, strict=True))
        coded = _coded(leaving, run)
        sizes[name] = coded
        profiles[name] = _operator_profile(operator, entering, leaving, run, sizes)
        if not any(one.records for one in run.timed.values()):
            remarks.append(f"{name!r} got no records and counts as free")
        elif not run.complete:
            remarks.append(f"{name!r} had time for only some of its input")
    if not run_sinks:
        remarks.append("sinks were not run")
    records = f"measured on {sample} records of each source at most"
    return Profile(profiles, "; ".join([records, *remarks]))


def _numbers(graph: Graph, streams: Iterable[Stream]) -> list[int]:
    """Where streams stand in the graph; equal ones are still two."""
    wanted = {id(stream) for stream in streams}
    return [s for s, stream in enumerate(graph.streams) if id(stream) in wanted]


def _operator_profile(
    operator: Operator,
    entering: Sequence[Stream],
    leaving: Sequence[Stream],
    run: Alone,
    sizes: Mapping[str, Mapping[str, CodecTimes]],
) -> OperatorProfile:
    coded = sizes[operator.name]

    def size_of(stream: Stream) -> float:
        found = sizes[stream.source].get(stream.output)
        return found.record_bytes if found else DEFAULT_RECORD_BYTES

    by_origin: dict[str, list[tuple[Timed, float]]] = {}
    for i, stream in enumerate(entering):
        by_origin.setdefault(origin(stream), []).append((run.timed[i], size_of(stream)))
    everything = list(run.timed.values())
    records = sum(timed.records for timed in everything)
    # Watermarks come with some batches only, and from inputs that carry little else.
    spread_ns = sum(timed.spread_ns for timed in everything) / max(records, 1)

    def work(timed: Sequence[Timed], read_bytes: float) -> Work:
        return _work(timed, spread_ns, read_bytes, coded)

    read = sum(timed.records * size for of in by_origin.values() for timed, size in of)
    by_input = {}
    if len(by_origin) > 1:
        by_input = {
            name: work([timed for timed, _ in of], of[0][1]) for name, of in by_origin.items()
        }
    return OperatorProfile(
        work(everything, read / records if records else 0.0),
        {output: round(times.record_bytes, 1) for output, times in coded.items()},
        by_input,
        _jumbos(leaving, run, coded),
        {leaving[j].target: ns for j, ns in run.deal_ns.items()},
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
    made: dict[str, int] = {}
    for one in timed:
        for output, count in one.made.items():
            made[output] = made.get(output, 0) + count
    selectivity = {output: count / records for output, count in made.items()}
    length = min(_STRETCH_RECORDS, records / _STRETCHES)
    stretches = sorted(part for one in timed for part in in_stretches(one.batches, length))
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


def _coded(leaving: Sequence[Stream], run: Alone) -> dict[str, CodecTimes]:
    """Size and codec times of each output that gave records."""
    found: dict[str, CodecTimes] = {}
    for stream, rounds in zip(leaving, run.carried, strict=True):
        jumbos = [part for batch in rounds for part in batch.parts if part]
        if jumbos and stream.output not in found:
            some = jumbos[:: -(-len(jumbos) // _CODED_JUMBOS)]
            try:
                found[stream.output] = measure_codec(some)
            except CodecError:
                continue  # such records can stay in their worker, and the codec says it if not
    return found


def _jumbos(
    leaving: Sequence[Stream], run: Alone, coded: Mapping[str, CodecTimes]
) -> dict[str, Jumbo]:
    """How records travel: how many in a message if the stream has two receivers."""
    found: dict[str, Jumbo] = {}
    for stream, rounds in zip(leaving, run.carried, strict=True):
        times = coded.get(stream.output)
        if times is None or stream.output in found:
            continue
        counts = [len(part) for batch in rounds for part in batch.parts if part]
        whole = stream.grouping.rule in (*DEALT, Rule.ALL, Rule.GLOBAL)
        records = sum(counts) / len(counts) / (1 if whole else RECEIVERS)
        found[stream.output] = Jumbo(
            round(times.encode_ns, 1), round(times.decode_ns, 1), round(max(records, 1.0), 1)
        )
    return found
