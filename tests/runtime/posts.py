"""What a core sends, kept for a test to look at."""

from collections.abc import Callable
from typing import Any

import tailrace as tr
from tailrace.runtime.core import Core, Limits
from tailrace.runtime.deployment import deploy
from tailrace.runtime.limits import DEFAULT_LIMITS
from tailrace.runtime.outgoing import Item


class Kept:
    """Takes everything while there is `room`; `size_of` says what a message is said to take."""

    def __init__(self, size_of: Callable[[list[Item]], int] = lambda items: 1) -> None:
        self.room = True
        self.messages: list[list[tuple[int, list[Item]]]] = []
        self.credits: list[tuple[Any, ...]] = []
        self.states: list[tuple[int, Any]] = []
        self.peers: dict[int, int] = {}
        """The worker that each gate was last sent to."""
        self._size_of = size_of

    def send(self, peer: int, parcels: list[tuple[int, list[Item]]]) -> int:
        if not self.room:
            return 0
        self.messages.append([(gate, list(items)) for gate, items in parcels])
        self.peers.update((gate, peer) for gate, _ in parcels)
        return sum(self._size_of(items) for _, items in parcels)

    def credit(self, peer: int, *credit: Any) -> None:
        self.credits.append((peer, *credit))

    def state(self, peer: int, message: Any) -> bool:
        self.states.append((peer, message))
        return True

    def check(self, record: Any) -> None:
        pass

    def size(self, records: list[Any]) -> int:
        return 1

    @property
    def items(self) -> list[Item]:
        """All that was sent, in order."""
        return [item for parcels in self.messages for _, items in parcels for item in items]


def core_of(
    topology: tr.Topology,
    placement: tuple[int, ...],
    clock: Callable[[], int] = lambda: 0,
    post: Any = None,
    limits: Limits = DEFAULT_LIMITS,
    rank: int = 0,
    **options: Any,
) -> Core:
    """A worker's core, for instances placed like that."""
    kept = Kept() if post is None else post
    deployment = deploy(topology.graph, placement)
    return Core(rank, deployment, clock, kept, limits=limits, **options)


def gate_of(core: Core, operator: str, index: int = 0, port: int = 0) -> int:
    """The number of the gate by which records enter an instance."""
    deployment = core.deployment
    return next(
        gate.number
        for gates in deployment.gates.values()
        for gate in gates
        if operator in deployment.wiring.home[gate.instance.operator].operators
        and gate.instance.index == index
        and deployment.graph.streams[gate.stream].port == port
    )
