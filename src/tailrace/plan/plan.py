"""A plan: how many instances, what runs fused, and who runs where."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from tailrace.graph.expand import chains
from tailrace.graph.model import Graph, Grouping, Rule, Stream
from tailrace.graph.validate import TopologyError, validate
from tailrace.plan.model.machine import Machine, Place

FREE_RULES = (Rule.FORWARD, Rule.SHUFFLE)
"""The rules between which a plan may choose; all others belong to what the topology means."""


class PlanError(ValueError):
    """The plan does not fit; the message says why, with the values."""


@dataclass(frozen=True)
class Plan:
    """Who runs where.

    Instances are numbered as `graph.wiring.wire` numbers those of `apply(plan, graph)`: chain by
    chain. `place_of[instance]` is an index into `places`.
    """

    scheduler: str
    reason: str
    parallelism: Mapping[str, int]
    """Instances of each operator."""
    chains: tuple[tuple[str, ...], ...]
    """Operators that run fused, as `graph.expand.chains` gives them after `apply`."""
    places: tuple[Place, ...]
    place_of: tuple[int, ...]
    core_of: tuple[int | None, ...] = ()
    """The core that each place is bound to, None for any. Empty: nothing is bound."""

    def save(self, path: Path | str) -> None:
        """Write as JSON that people can read and edit."""
        Path(path).write_text(json.dumps(plan_to_json(self), indent=2) + "\n")

    @staticmethod
    def load(path: Path | str) -> Plan:
        """Read what `save` wrote."""
        return plan_from_json(json.loads(Path(path).read_text()))


def apply(plan: Plan, graph: Graph) -> Graph:
    """The graph as the plan wants it: parallelism and fusion set.

    A stream that is forwarded or shuffled is forwarded inside a chain and shuffled otherwise
    (where it cannot fuse anyway, it goes on instance by instance if the parallelisms allow).
    All other groupings stay.
    """
    missing = [
        operator.name for operator in graph.operators if operator.name not in plan.parallelism
    ]
    if missing:
        raise PlanError(
            f"the plan of {plan.scheduler!r} has no parallelism for {missing}; it was made for"
            f" another topology than {graph.name!r}"
        )
    chain_of = {name: index for index, names in enumerate(plan.chains) for name in names}

    def rule(stream: Stream) -> Grouping:
        if stream.grouping.rule not in FREE_RULES:
            return stream.grouping
        fused = chain_of.get(stream.source, -1) == chain_of.get(stream.target, -2)
        equal = plan.parallelism[stream.source] == plan.parallelism[stream.target]
        alone = len(graph.into(stream.target)) == 1
        stays = stream.grouping.rule is Rule.FORWARD and equal and not alone
        rule = Rule.FORWARD if fused or stays else Rule.SHUFFLE
        return Grouping(rule, tail=stream.grouping.tail)

    return replace(
        graph,
        operators=tuple(
            replace(operator, parallelism=plan.parallelism[operator.name])
            for operator in graph.operators
        ),
        streams=tuple(replace(stream, grouping=rule(stream)) for stream in graph.streams),
    )


def check(plan: Plan, graph: Graph, places: Sequence[Place] | None = None) -> Graph:
    """Raise a PlanError if the plan does not fit the graph, or the places that there are.

    Gives the graph as the plan wants it. Without `places` the plan's own count.
    """
    unknown = sorted(plan.parallelism.keys() - {operator.name for operator in graph.operators})
    if unknown:
        raise PlanError(
            f"the plan of {plan.scheduler!r} names the operators {unknown}, which topology"
            f" {graph.name!r} does not have"
        )
    applied = apply(plan, graph)
    try:
        validate(applied)
    except TopologyError as error:
        raise PlanError(f"the plan of {plan.scheduler!r} makes no topology: {error}") from error
    found = chains(applied)
    if tuple(chain.operators for chain in found) != plan.chains:
        raise PlanError(
            f"the plan fuses {[list(names) for names in plan.chains]}, but topology"
            f" {graph.name!r} then has the chains {[list(chain.operators) for chain in found]}"
        )
    instances = sum(chain.parallelism for chain in found)
    if len(plan.place_of) != instances:
        raise PlanError(
            f"the plan places {len(plan.place_of)} instances; topology {graph.name!r} with its"
            f" parallelism has {instances}"
        )
    wrong = [where for where in plan.place_of if not 0 <= where < len(plan.places)]
    if wrong:
        raise PlanError(f"the plan uses place {wrong[0]}; it has {len(plan.places)} places")
    if len(plan.core_of) not in (0, len(plan.places)):
        raise PlanError(
            f"the plan binds {len(plan.core_of)} places to cores; it has {len(plan.places)} places"
        )
    if places is not None:
        _check_places(plan, tuple(places))
    return applied


def _check_places(plan: Plan, places: tuple[Place, ...]) -> None:
    if len(plan.places) != len(places):
        raise PlanError(
            f"the plan of {plan.scheduler!r} was made for {len(plan.places)} workers; there are"
            f" {len(places)}. Start as many, or make a plan for these"
        )
    if plan.places != places:
        p = next(p for p, place in enumerate(places) if place != plan.places[p])
        made, found = (_as_text(some[p]) for some in (plan.places, places))
        raise PlanError(
            f"the plan of {plan.scheduler!r} was made for other workers: its worker {p} is on"
            f" {made}, the one that there is on {found}. Make a plan for these"
        )


def _as_text(place: Place) -> str:
    return f"node {place.node}, socket {place.socket} with cores: {place.cores}"


def bound_to_cores(plan: Plan, machine: Machine) -> Plan:
    """The plan with each worker bound to a core of its socket, while there are enough.

    Workers of a socket that has fewer cores than workers stay free, and so do places of several
    cores.
    """
    crowd = Counter((place.node, place.socket) for place in plan.places)
    taken: Counter[tuple[int, int]] = Counter()
    core_of: list[int | None] = []
    for place in plan.places:
        socket = (place.node, place.socket)
        cores = machine.nodes[place.node].sockets[place.socket].cores
        free = place.cores > 1 or crowd[socket] > len(cores)
        core_of.append(None if free else cores[taken[socket]])
        taken[socket] += 1
    return replace(plan, core_of=tuple(core_of))


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """The plan as plain JSON values."""
    return asdict(plan)


def plan_from_json(saved: Mapping[str, Any]) -> Plan:
    """The plan that `plan_to_json` made them of. Raises a PlanError for anything else."""
    if not isinstance(saved, Mapping):
        raise PlanError(f"a plan is a JSON object, not {saved!r:.80}")
    wanted = {one.name for one in fields(Plan)} - {"core_of"}
    missing, unknown = sorted(wanted - saved.keys()), sorted(saved.keys() - wanted - {"core_of"})
    if missing or unknown:
        raise PlanError(
            f"this is no plan as `Plan.save` writes it: it has no {missing}, and {unknown} mean"
            " nothing"
        )
    try:
        return Plan(
            scheduler=saved["scheduler"],
            reason=saved["reason"],
            parallelism=dict(saved["parallelism"]),
            chains=tuple(tuple(names) for names in saved["chains"]),
            places=tuple(Place(**place) for place in saved["places"]),
            place_of=tuple(saved["place_of"]),
            core_of=tuple(saved.get("core_of", ())),
        )
    except (TypeError, ValueError) as error:
        raise PlanError(f"this is no plan as `Plan.save` writes it: {error}") from error


def plan_for(
    graph: Graph,
    places: Sequence[Place],
    place_of: Sequence[int],
    *,
    scheduler: str,
    reason: str,
) -> Plan:
    """A plan that keeps the graph as it is and only places its instances."""
    return Plan(
        scheduler,
        reason,
        {operator.name: operator.parallelism for operator in graph.operators},
        tuple(chain.operators for chain in chains(graph)),
        tuple(places),
        tuple(place_of),
    )


def with_parallelism(graph: Graph, parallelism: Mapping[str, int]) -> Graph:
    """The graph with other parallelisms. Chains stay fused: all of a chain get its head's.

    A forwarded stream that is not fused goes on by instance if that is still possible, else it is
    shuffled.
    """
    of = {
        name: parallelism.get(chain.operators[0], chain.parallelism)
        for chain in chains(graph)
        for name in chain.operators
    }

    def rule(stream: Stream) -> Grouping:
        broken = stream.grouping.rule is Rule.FORWARD and of[stream.source] != of[stream.target]
        return Grouping(Rule.SHUFFLE) if broken else stream.grouping

    return replace(
        graph,
        operators=tuple(
            replace(operator, parallelism=of[operator.name]) for operator in graph.operators
        ),
        streams=tuple(replace(stream, grouping=rule(stream)) for stream in graph.streams),
    )
