"""The hardware as the planner sees it: nodes, sockets, cores, and what crossing a boundary costs.

A record that goes from one instance to another stays in a place (by reference), or crosses to
another place of the socket, to another socket of the node, or to another node. Each boundary has
a cost for the sender and one for the receiver. All values are plain; nothing here looks at the
machine it runs on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from math import ceil, inf
from pathlib import Path
from typing import Any

CACHE_LINE_BYTES = 64
TYPICAL_JUMBO_RECORDS = 128.0
"""What a worker under load polls from a source at once, dealt to two receivers."""
PROFILED_RECEIVERS = 2
"""Among so many a profile deals a stream, as if each were in a worker of its own."""


@dataclass(frozen=True)
class Cost:
    """Time that one record of some size takes."""

    record_ns: float = 0.0
    byte_ns: float = 0.0
    line_ns: float = 0.0
    """For each cache line that the record touches."""
    message_ns: float = 0.0
    """For each message: the records of a jumbo share it."""

    def ns(self, record_bytes: float, jumbo_records: float = TYPICAL_JUMBO_RECORDS) -> float:
        """The time for a record of that size, which travels with so many (itself included)."""
        lines = ceil(record_bytes / CACHE_LINE_BYTES) if self.line_ns else 0
        return (
            self.record_ns
            + self.byte_ns * record_bytes
            + self.line_ns * lines
            + self.message_ns / jumbo_records
        )


@dataclass(frozen=True)
class Jumbo:
    """How the records of an output travel, as a profile has measured it: times of one record."""

    encode_ns: float
    decode_ns: float
    records: float
    """How many share one under load, if there are two receivers, each in a worker of its own."""

    def among(self, workers: int) -> Jumbo:
        """The same when a poll is dealt to receivers in so many workers.

        What goes from one worker to another travels together, whatever the instances.
        """
        return replace(self, records=max(self.records * PROFILED_RECEIVERS / workers, 1.0))


@dataclass(frozen=True)
class Crossing:
    """What a record costs the two instances when it crosses a boundary."""

    sender: Cost = field(default_factory=Cost)
    receiver: Cost = field(default_factory=Cost)
    encode: Cost | None = None
    """What encoding adds for records of which no profile says it. None: nothing is encoded."""
    decode: Cost | None = None

    def send_ns(self, record_bytes: float, jumbo: Jumbo | None = None) -> float:
        """The sender's time for a record."""
        ns = self.sender.ns(record_bytes, _jumbo_records(jumbo))
        if self.encode is None:
            return ns
        return ns + (self.encode.ns(record_bytes) if jumbo is None else jumbo.encode_ns)

    def receive_ns(self, record_bytes: float, jumbo: Jumbo | None = None) -> float:
        """The receiver's time for a record."""
        ns = self.receiver.ns(record_bytes, _jumbo_records(jumbo))
        if self.decode is None:
            return ns
        return ns + (self.decode.ns(record_bytes) if jumbo is None else jumbo.decode_ns)


def _jumbo_records(jumbo: Jumbo | None) -> float:
    return TYPICAL_JUMBO_RECORDS if jumbo is None else jumbo.records


FREE = Crossing()


@dataclass(frozen=True)
class Socket:
    """A processor: the numbers of its cores as the system counts them, and its memory."""

    cores: tuple[int, ...]
    memory_bytes_per_s: float = inf
    cache_bytes: tuple[int, ...] = ()
    """What a core can use of data caches, the nearest level first. Told, not part of the model."""


@dataclass(frozen=True)
class Node:
    """A host. `distances[i][j]` says how far socket j is from socket i: 0 for itself, 1, 2, ..."""

    name: str
    sockets: tuple[Socket, ...]
    distances: tuple[tuple[int, ...], ...] = ((0,),)


@dataclass(frozen=True)
class Place:
    """Where instances run: a worker (one core), or a socket with threads inside."""

    node: int
    socket: int
    cores: int = 1


@dataclass(frozen=True)
class Machine:
    """All nodes, and the costs of the boundaries between places.

    `other_socket[d - 1]` and `channel_bytes_per_s[d - 1]` belong to sockets at distance d. A
    node's link takes `link_bytes_per_s` out and as much in. `inf` is no limit. `yardstick_ns` is
    the speed of the cores that the costs are for, by `measure.yardstick`; 0: not known.
    """

    name: str
    nodes: tuple[Node, ...]
    same_place: Crossing = FREE
    same_socket: Crossing = FREE
    other_socket: tuple[Crossing, ...] = ()
    other_node: Crossing = FREE
    channel_bytes_per_s: tuple[float, ...] = ()
    link_bytes_per_s: float = inf
    yardstick_ns: float = 0.0

    def __post_init__(self) -> None:
        for node in self.nodes:
            count = len(node.sockets)
            if [len(row) for row in node.distances] != [count] * count:
                raise ValueError(
                    f"node {node.name!r} has {count} sockets; its distances must be {count} rows"
                    f" of {count}, not rows of {[len(row) for row in node.distances]}"
                )
            farthest = max(max(row) for row in node.distances)
            if farthest > min(len(self.other_socket), len(self.channel_bytes_per_s)):
                raise ValueError(
                    f"node {node.name!r} has sockets at distance {farthest}, but there are costs"
                    f" for {len(self.other_socket)} and bandwidths for"
                    f" {len(self.channel_bytes_per_s)} distances"
                )

    @property
    def cores(self) -> int:
        """How many cores all nodes have together."""
        return sum(len(socket.cores) for node in self.nodes for socket in node.sockets)

    def sockets(self) -> tuple[Place, ...]:
        """Every socket as a place with all its cores: instances are threads of one process."""
        return tuple(
            Place(n, s, len(socket.cores))
            for n, node in enumerate(self.nodes)
            for s, socket in enumerate(node.sockets)
        )

    def workers(self, per_node: int | None = None) -> tuple[Place, ...]:
        """Workers of one core: as many on each node as it has cores, or `per_node`.

        A node's sockets take turns in proportion to their cores; beyond the cores they go round.
        """
        places = []
        for n, node in enumerate(self.nodes):
            slots = [s for s, socket in enumerate(node.sockets) for _ in socket.cores]
            wanted = len(slots) if per_node is None else per_node
            places += [Place(n, slots[i % len(slots)]) for i in range(wanted)]
        return tuple(places)

    def crossing(self, sender: int, receiver: int, places: tuple[Place, ...]) -> Crossing:
        """What a record costs from one place to another, by their indexes."""
        if sender == receiver:
            return self.same_place
        one, other = places[sender], places[receiver]
        if one.node != other.node:
            return self.other_node
        distance = self.nodes[one.node].distances[one.socket][other.socket]
        return self.other_socket[distance - 1] if distance else self.same_socket

    def crossed_by(self, crossing: Crossing) -> Machine:
        """The machine if crossing any boundary cost the same."""
        return replace(
            self,
            same_place=crossing,
            same_socket=crossing,
            other_socket=(crossing,) * len(self.other_socket),
            other_node=crossing,
        )

    def channel(self, node: int, one: int, other: int) -> float:
        """Bytes per second from one socket of a node to another."""
        distance = self.nodes[node].distances[one][other]
        return self.channel_bytes_per_s[distance - 1] if distance else inf

    def save(self, path: Path | str) -> None:
        """Write as JSON that people can read and edit."""
        Path(path).write_text(json.dumps(machine_to_json(self), indent=2) + "\n")

    @staticmethod
    def load(path: Path | str) -> Machine:
        """Read what `save` wrote."""
        return machine_from_json(json.loads(Path(path).read_text()))


def machine_to_json(machine: Machine) -> dict[str, Any]:
    """The machine as plain JSON values; no limit is null."""
    saved: dict[str, Any] = _without_inf(asdict(machine))
    return saved


def machine_from_json(saved: Mapping[str, Any]) -> Machine:
    """The machine that `machine_to_json` made them of."""

    def crossing(values: Mapping[str, Any]) -> Crossing:
        return Crossing(**{key: cost and Cost(**cost) for key, cost in values.items()})

    def limit(value: float | None) -> float:
        return inf if value is None else value

    return Machine(
        name=saved["name"],
        nodes=tuple(
            Node(
                node["name"],
                tuple(
                    Socket(
                        tuple(socket["cores"]),
                        limit(socket["memory_bytes_per_s"]),
                        tuple(socket.get("cache_bytes", ())),
                    )
                    for socket in node["sockets"]
                ),
                tuple(tuple(row) for row in node["distances"]),
            )
            for node in saved["nodes"]
        ),
        same_place=crossing(saved["same_place"]),
        same_socket=crossing(saved["same_socket"]),
        other_socket=tuple(crossing(values) for values in saved["other_socket"]),
        other_node=crossing(saved["other_node"]),
        channel_bytes_per_s=tuple(map(limit, saved["channel_bytes_per_s"])),
        link_bytes_per_s=limit(saved["link_bytes_per_s"]),
        yardstick_ns=saved.get("yardstick_ns", 0.0),
    )


def _without_inf(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_inf(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_inf(inner) for inner in value]
    return None if value == inf else value


def _two_trays(
    name: str,
    cores: int,
    memory: float,
    latencies_ns: tuple[float, float],
    channels: tuple[float, float],
) -> Machine:
    """Eight sockets in two trays of four, as both of BriskStream's servers have them.

    Only the receiver pays: it fetches every cache line of a record from the other socket, at the
    worst latency (BriskStream's formula 2). Inside a socket fetching is part of the execution.
    """
    distances = tuple(
        tuple(0 if i == j else 1 if i // 4 == j // 4 else 2 for j in range(8)) for i in range(8)
    )
    sockets = tuple(
        Socket(tuple(range(first, first + cores)), memory) for first in range(0, 8 * cores, cores)
    )
    return Machine(
        name,
        (Node(name, sockets, distances),),
        other_socket=tuple(Crossing(receiver=Cost(line_ns=ns)) for ns in latencies_ns),
        channel_bytes_per_s=channels,
    )


def server_a(sockets: int = 8) -> Machine:
    """BriskStream's Server A (its table 2): 8 x 18 cores; the first `sockets` of them."""
    machine = _two_trays("server A", 18, 54.3e9, (307.7, 548.0), (13.2e9, 5.8e9))
    return _first_sockets(machine, sockets)


def server_b(sockets: int = 8) -> Machine:
    """BriskStream's Server B (its table 2): 8 x 8 cores; the first `sockets` of them."""
    machine = _two_trays("server B", 8, 24.2e9, (185.2, 349.6), (10.6e9, 10.8e9))
    return _first_sockets(machine, sockets)


def _first_sockets(machine: Machine, count: int) -> Machine:
    (node,) = machine.nodes
    fewer = replace(
        node,
        sockets=node.sockets[:count],
        distances=tuple(row[:count] for row in node.distances[:count]),
    )
    return replace(machine, nodes=(fewer,))


def cluster(
    nodes: int,
    sockets: int = 1,
    cores: int = 4,
    link_bits_per_s: float = 1e9,
    *,
    same_socket: Crossing = FREE,
    other_socket: Crossing = FREE,
    other_node: Crossing = FREE,
) -> Machine:
    """Equal nodes joined by equal links; sockets of a node are all equally far apart."""
    equal = tuple(Socket(tuple(range(s * cores, (s + 1) * cores))) for s in range(sockets))
    distances = tuple(tuple(int(i != j) for j in range(sockets)) for i in range(sockets))
    return Machine(
        f"{nodes} nodes of {sockets} x {cores} cores",
        tuple(Node(f"node {n}", equal, distances) for n in range(nodes)),
        same_socket=same_socket,
        other_socket=(other_socket,),
        other_node=other_node,
        channel_bytes_per_s=(inf,),
        link_bytes_per_s=link_bits_per_s / 8,
    )


def total_cores(places: Iterable[Place]) -> int:
    """How many cores the places have together."""
    return sum(place.cores for place in places)
