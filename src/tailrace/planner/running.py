"""A profile refreshed from a running job: what its operators cost and do now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tailrace.control.progress.summary import Summary
from tailrace.graph.expand import chains
from tailrace.graph.model import Graph, Rule, Stream
from tailrace.plan.model.profile import OperatorProfile, Profile, Work, input_key


def observed_profile(
    summary: Summary,
    graph: Graph,
    base: Profile | None = None,
    *,
    since: Summary | None = None,
) -> Profile:
    """The profile of a job's graph (as it runs) by its progress, since an earlier one if given.

    Times are means of the wall clock: on a machine that is busy with other things they are too
    long. A job does not tell everything: sizes, spreads, and how the work differs between inputs
    stays as in `base`, the differences in proportion. So do sources if they are in `base`, since in
    a job they may be made to wait. Operators that have got nothing stay altogether.
    """
    moved = _moved(summary, since)
    streams = _streams(summary, since, graph)
    profiles: dict[str, OperatorProfile] = {}
    for operator in graph.operators:
        name = operator.name
        known = base.operators.get(name) if base else None
        before = known or OperatorProfile(Work(0.0))
        records, execute_ns = moved[name]
        if not records:
            profiles[name] = before
            continue
        made = {
            stream.output: streams[s] / records
            for s, stream in enumerate(graph.streams)
            if stream.source == name and s in streams
        }
        entered = {
            input_key(stream): streams[s]
            for s, stream in enumerate(graph.streams)
            if stream.target == name and s in streams
        }
        measured_ns = None if operator.is_source and known else execute_ns / records
        profiles[name] = _refreshed(before, measured_ns, made, entered)
    return Profile(profiles, f"from a running job: {sum(summary.emitted.values())} records emitted")


def _moved(summary: Summary, since: Summary | None) -> dict[str, tuple[int, float]]:
    """Records and execute time by operator."""

    def total(of: Summary, name: str) -> tuple[int, float]:
        progress = of.operators[name]
        return progress.records_in, progress.execute_us * 1000 * progress.records_in

    found = {}
    for name in summary.operators:
        records, execute_ns = total(summary, name)
        if since is not None:
            earlier, earlier_ns = total(since, name)
            records, execute_ns = records - earlier, execute_ns - earlier_ns
        found[name] = records, execute_ns
    return found


def _streams(summary: Summary, since: Summary | None, graph: Graph) -> dict[int, float]:
    """Records by stream, each counted once. Equal streams share what their label has carried."""
    labels = [stream.label for stream in graph.streams]
    chain_of = {name: chain for chain in chains(graph) for name in chain.operators}
    moved = _moved(summary, since)
    found: dict[int, float] = {}
    for s, stream in enumerate(graph.streams):
        if chain_of[stream.source] is chain_of[stream.target]:
            found[s] = moved[stream.target][0]  # it reads nothing else
            continue
        progress = summary.streams.get(stream.label)
        if progress is None:
            continue
        sent = progress.sent - (since.streams[stream.label].sent if since else 0)
        found[s] = sent / _copies(stream, graph) / labels.count(stream.label)
    return found


def _copies(stream: Stream, graph: Graph) -> int:
    return graph.operator(stream.target).parallelism if stream.grouping.rule is Rule.ALL else 1


def _refreshed(
    before: OperatorProfile,
    measured_ns: float | None,
    made: Mapping[str, float],
    entered: Mapping[str, float],
) -> OperatorProfile:
    """The operator with its mean time and selectivities as measured, inputs in proportion."""

    def mean(value: Callable[[Work], float]) -> float:
        """Over the inputs, by what entered, as the profile has it so far."""
        total = sum(entered.values())
        if not before.by_input or not total:
            return value(before.work)
        return sum(n / total * value(before.work_for(name)) for name, n in entered.items())

    was_ns = mean(lambda work: work.execute_ns)
    was = {output: mean(lambda work, o=output: work.records(o)) for output in made}  # type: ignore[misc]

    def refreshed(work: Work) -> Work:
        def time(ns: float) -> float:
            return ns if measured_ns is None else _scaled(ns, was_ns, measured_ns)

        shares = {o: _scaled(work.records(o), was[o], now) for o, now in made.items()}
        return replace(
            work,
            execute_ns=time(work.execute_ns),
            percentiles_ns={percent: time(ns) for percent, ns in work.percentiles_ns.items()},
            selectivity={**work.selectivity, **shares},
        )

    return replace(
        before,
        work=refreshed(before.work),
        by_input={name: refreshed(work) for name, work in before.by_input.items()},
    )


def _scaled(value: float, was: float, now: float) -> float:
    """The value, changed as much as the mean that went from `was` to `now`."""
    return value * now / was if was else now
