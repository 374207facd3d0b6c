"""Small graphs, machines and their exhaustive search, for the planner's tests."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations_with_replacement, product

from hypothesis import strategies as st

from tailrace.graph.model import MAIN, Graph, Grouping, Operator, Rule, Stream
from tailrace.plan.model.flow import Flow
from tailrace.plan.model.loads import loads, resource_uses, source_rates
from tailrace.plan.model.machine import Cost, Crossing, Machine, Node, Place, Socket
from tailrace.plan.model.profile import OperatorProfile, Profile, Work
from tailrace.plan.plan import Plan, plan_for


def graph(
    streams: Sequence[tuple[str, str, Rule]], parallelism: Mapping[str, int] | None = None
) -> Graph:
    """Operators by the streams that name them; those that no stream enters are sources."""
    names = list(dict.fromkeys(name for source, target, _ in streams for name in (source, target)))
    entered = {target for _, target, _ in streams}
    sizes = parallelism or {}
    return Graph(
        "small",
        tuple(Operator(n, None, sizes.get(n, 1), is_source=n not in entered) for n in names),
        tuple(Stream(source, target, Grouping(rule)) for source, target, rule in streams),
    )


def profile(
    times_ns: Mapping[str, float], record_bytes: float = 64.0, **selectivity: float
) -> Profile:
    """Every record is read from memory once."""
    return Profile(
        {
            name: OperatorProfile(
                Work(ns, {MAIN: selectivity.get(name, 1.0)}, record_bytes), {MAIN: record_bytes}
            )
            for name, ns in times_ns.items()
        }
    )


def placed(topology: Graph, places: Sequence[Place], *place_of: int) -> Plan:
    return plan_for(topology, places, place_of, scheduler="by hand", reason="a test")


def sustained(flow: Flow, counts: Sequence[Sequence[int]]) -> float:
    """The source rate by the model, which the searches must agree with."""
    found = loads(flow, counts, source_rates(flow, None))
    shared = max(use.used for use in resource_uses(flow, found))
    alone = max(
        cpu / n
        for used, row in zip(found.part, counts, strict=True)
        for cpu, n in zip(used, row, strict=True)
        if n
    )
    return 1 / max(shared, alone)


def all_counts(sizes: Sequence[int], places: int) -> Iterator[list[list[int]]]:
    """Every placement, instances of a part taken as alike."""
    rows = [
        [
            [chosen.count(place) for place in range(places)]
            for chosen in combinations_with_replacement(range(places), size)
        ]
        for size in sizes
    ]
    for counts in product(*rows):
        yield [list(row) for row in counts]


RULES = (
    Rule.SHUFFLE,
    Rule.KEY,
    Rule.PARTIAL_KEY,
    Rule.ALL,
    Rule.LOCAL_OR_SHUFFLE,
    Rule.GLOBAL,
    Rule.FORWARD,
)


@st.composite
def graphs(draw: st.DrawFn, most: int = 4, rules: Sequence[Rule] = RULES) -> tuple[Graph, Profile]:
    """A connected DAG of two to `most` operators with times, sizes and selectivities."""
    count = draw(st.integers(2, most))
    names = "abcdef"[:count]
    streams = []
    for i in range(1, count):
        before = draw(st.sets(st.integers(0, i - 1), min_size=1, max_size=2))
        streams += [(names[j], names[i], draw(st.sampled_from(rules))) for j in sorted(before)]
    times = {name: float(draw(st.integers(1, 40)) * 50) for name in names}
    selectivity = {name: draw(st.sampled_from([0.5, 1.0, 1.0, 2.0])) for name in names}
    size = float(draw(st.sampled_from([16, 64, 200])))
    return graph(streams), profile(times, size, **selectivity)


@st.composite
def machines(draw: st.DrawFn, most: int = 3) -> tuple[Machine, tuple[Place, ...]]:
    """One or two nodes of one or two sockets, and two to `most` places on them."""

    def crossing(scale: int) -> Crossing:
        sender, receiver = (float(draw(st.integers(0, 6)) * scale) for _ in range(2))
        return Crossing(Cost(record_ns=sender), Cost(line_ns=receiver))

    limit = st.sampled_from([float("inf"), 1e8, 1e7])
    nodes = []
    for n in range(draw(st.integers(1, 2))):
        sockets = draw(st.integers(1, 2))
        nodes.append(
            Node(
                f"node {n}",
                tuple(
                    Socket(tuple(range(draw(st.integers(1, 3)))), draw(limit))
                    for _ in range(sockets)
                ),
                tuple(tuple(int(i != j) for j in range(sockets)) for i in range(sockets)),
            )
        )
    machine = Machine(
        "small",
        tuple(nodes),
        same_socket=crossing(20),
        other_socket=(crossing(50),),
        other_node=crossing(100),
        channel_bytes_per_s=(draw(limit),),
        link_bytes_per_s=draw(limit),
    )
    if draw(st.booleans()):
        places = machine.sockets()
    else:
        places = machine.workers(per_node=draw(st.integers(1, 2)))
    if len(places) == 1:
        places = (*places, Place(0, 0, 1))
    return machine, places[:most]
