"""Random topologies, and machines to run them on."""

from dataclasses import dataclass

from hypothesis import strategies as st

import tailrace as tr
from tailrace.graph.model import Graph
from tailrace.plan.model.machine import Machine, Place, cluster
from tailrace.plan.model.profile import OperatorProfile, Profile, Work


@dataclass(frozen=True)
class Setting:
    """All that a scheduler is given."""

    graph: Graph
    profile: Profile
    machine: Machine
    places: tuple[Place, ...]


@st.composite
def settings_of_schedulers(draw: st.DrawFn) -> Setting:
    graph = draw(topologies())
    work = st.builds(
        Work,
        st.integers(1, 5000).map(float),
        st.fixed_dictionaries({"main": st.sampled_from([0.1, 1.0, 3.0])}),
    )
    profile = Profile({})
    if draw(st.booleans()):
        profile = Profile({o.name: OperatorProfile(draw(work)) for o in graph.operators})
    machine = cluster(draw(st.integers(1, 3)), draw(st.integers(1, 2)), 4)
    slots = st.builds(Place, st.integers(0, len(machine.nodes) - 1), st.just(0))
    uneven = st.lists(slots, min_size=1, max_size=6).map(tuple)
    even = st.integers(1, 4).map(machine.workers)
    places = draw(st.one_of(uneven, even, st.just(machine.sockets())))
    return Setting(graph, profile, machine, places)


@st.composite
def topologies(draw: st.DrawFn) -> Graph:
    topology = tr.Topology("random")
    parallelism = st.integers(1, 4)
    streams = [
        topology.source([1], name=f"source {i}", parallelism=draw(parallelism))
        for i in range(draw(st.integers(1, 2)))
    ]
    for step in range(draw(st.integers(0, 4))):
        stream = streams[draw(st.integers(0, len(streams) - 1))]
        regroup = draw(st.sampled_from(["shuffle", "broadcast", "gather", "key_by"]))
        grouped = getattr(stream, regroup)()
        copies = 1 if regroup == "gather" else draw(parallelism)
        streams.append(grouped.map(abs, name=f"step {step}", parallelism=copies))
    for i, stream in enumerate(streams):
        stream.sink(print, name=f"sink {i}")
    return topology.graph


def pipelines(count: int) -> Graph:
    """Pipelines that have nothing to do with each other."""
    topology = tr.Topology("pipelines")
    for i in range(count):
        source = topology.source([1], name=f"source {i}")
        source.shuffle().map(abs, name=f"step {i}").shuffle().sink(print, name=f"sink {i}")
    return topology.graph
