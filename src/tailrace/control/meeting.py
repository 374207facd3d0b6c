"""Meeting the other workers: a way to each of them, and the core that they work with.

When workers were lost and replaced, those that are left meet the new ones only.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tailrace.control.checkpointing import restoring
from tailrace.control.mains import load_job
from tailrace.control.progress.sizes import size_of
from tailrace.control.protocol import Hello, Peers, Settings
from tailrace.control.sockets import Sockets
from tailrace.graph.model import Graph
from tailrace.graph.wiring import InstanceId, wire
from tailrace.runtime.board import SLOT_BYTES, Boards
from tailrace.runtime.core import Core, Limits, nothing_kept
from tailrace.runtime.deployment import NOWHERE, deploy
from tailrace.runtime.loads import LOADS_BYTES, Loads
from tailrace.runtime.moving import StateMessage
from tailrace.runtime.replaying import Policy
from tailrace.tail.replay import replay_named
from tailrace.transport.peer import Arrivals, JumboCodec, Load, Parcel, Peer, RingPeer, TcpPeer
from tailrace.transport.ring import Doorbell, Ring, RingError
from tailrace.transport.shared import SharedMemory, SharedMemoryError, attach
from tailrace.transport.tcp import Refusals, TcpConfig, TcpConnection

_BOARD_BYTES = 1024 * SLOT_BYTES
"""So many runs of a worker's sources can be tracked at a time."""
WorkerJob = tuple[Graph, tuple[int, ...], Limits]
"""The graph, the placement of its instances, and the limits."""


class Meeting:
    """A worker's ways to the others, and how its core is built and fed through them."""

    def __init__(
        self,
        settings: Settings,
        rank: int,
        doorbell: Doorbell,
        sockets: Sockets,
        refusals: Refusals,
    ) -> None:
        self._settings = settings
        self._rank = rank
        self._doorbell = doorbell
        self._sockets = sockets
        self._refusals = refusals
        self._config: TcpConfig | None = None
        self._pin: bytes | None = None
        self._clock_ns: Callable[[], int] = time.monotonic_ns
        self._wall_ns: Callable[[], int] = time.time_ns
        self._codec = JumboCodec(self._clock_ns)
        self._attempt = 0
        self._hellos: dict[int, Hello] = {}  # of those that there is a way to
        self._ways: dict[int, str] = {}
        self._peers: dict[int, Peer] = {}
        self._remote: list[TcpPeer] = []
        self._unproven: dict[int, TcpConnection] = {}
        self._executor = ""
        self._coming: dict[int, tuple[Hello, Peer]] = {}  # those that join; nothing is sent there
        self._core: Core | None = None
        self._board = SharedMemory(_BOARD_BYTES + LOADS_BYTES)
        self._boards = Boards(rank, lambda one: self._board_of(one)[:_BOARD_BYTES])
        self._loads = Loads(rank, self._row_of)
        self._policies: dict[str, Policy | None] = {}
        self.replay = settings.replay
        """What is done for short tails."""
        self.accept: Callable[[int, int, bytes | memoryview], None]
        """Hands what a peer has sent to the core. Nothing of a payload in a ring is kept."""
        self.numbers: dict[InstanceId, int] = {}
        """Of instances, as plans numbered them when the job was started."""
        self._arrivals = self._expect()

    def _expect(self) -> Arrivals:
        arrivals = Arrivals(self._codec, self._deliver, self._credited, self._told_of_state)
        arrivals.begin(self._attempt)
        self.accept = arrivals.accept
        return arrivals

    @property
    def board(self) -> str:
        """The address of this worker's board, and behind it of what it has given others to do."""
        return self._board.address

    def _board_of(self, rank: int) -> memoryview:
        return self._board.memory if rank == self._rank else attach(self._hellos[rank].board)

    def _row_of(self, rank: int) -> memoryview | None:
        with suppress(SharedMemoryError):
            return self._board_of(rank)[_BOARD_BYTES:]
        return None  # who is lost takes its row along

    def _shares_memory(self, rank: int) -> bool:
        return rank == self._rank or self._ways.get(rank) == "ring"

    def set_replay(self, replay: str) -> None:
        """Send again what that says, by name, from now on."""
        self.replay = replay
        for rank in self._ways if replay != "off" else ():
            # Who is lost takes its board along, and what it has sent may still be here.
            if self._shares_memory(rank):
                with suppress(SharedMemoryError):
                    self._boards.find(rank)
        if replay not in self._policies:  # what one has learnt it still knows when its turn comes
            self._policies[replay] = replay_named(replay)
        if self._core is not None:
            self._core.set_replay(self._policies[replay])

    def begin(self, attempt: int) -> None:
        """Have nothing to do any more with what is sent or to be sent in another attempt."""
        self._attempt = attempt
        self._arrivals.begin(attempt)
        self.expect(())  # they join when all run again
        for peer in self._peers.values():
            peer.begin(attempt)

    def go_by(self, clock_ns: Callable[[], int], wall_ns: Callable[[], int]) -> None:
        """What all that is built from now on takes for the time: the job's clocks."""
        self._clock_ns = clock_ns
        self._wall_ns = wall_ns
        self._codec = JumboCodec(clock_ns)
        self._arrivals = self._expect()

    def known_by(self, config: TcpConfig, pin: bytes | None) -> None:
        """What proves to others who this worker is; with a pin they are spoken to by TLS."""
        self._config, self._pin = config, pin

    def meet(self, hellos: tuple[Hello, ...]) -> dict[int, str]:
        """Begin to open a way to every other worker, and say which: ring or tcp.

        A way to a worker that is the same as before, and not lost, stays.
        """
        self._executor = hellos[self._rank].executor
        for hello in hellos:
            known = self._peers.get(hello.rank)
            if known is not None and not known.lost and self._hellos[hello.rank] == hello:
                continue
            if hello.rank == self._rank:
                continue
            self._leave(hello.rank)
            self._take(hello, self._way_to(hello, populate=not hello.life))
        return dict(self._ways)

    def _way_to(self, hello: Hello, *, populate: bool) -> Peer:
        node = self._settings.node
        apart = node == "worker" or (node == "executor" and hello.executor != self._executor)
        peer = (None if apart else self._by_ring(hello, populate)) or self._by_tcp(hello)
        peer.begin(self._attempt)
        return peer

    def _take(self, hello: Hello, peer: Peer) -> None:
        """From now on that is the way to a worker."""
        self._hellos[hello.rank], self._peers[hello.rank] = hello, peer
        self._ways[hello.rank] = "tcp" if isinstance(peer, TcpPeer) else "ring"
        if isinstance(peer, TcpPeer):
            self._remote.append(peer)
        else:
            self._loads.find(hello.rank)

    # ---- workers that join and leave while we run ----

    def expect(self, hellos: tuple[Hello, ...]) -> None:
        """Begin to open ways to those that join; those named before, and not now, will not."""
        named = {hello.rank: hello for hello in hellos}
        for rank, (hello, peer) in list(self._coming.items()):
            if named.get(rank) != hello or peer.lost:
                del self._coming[rank]
                self._close(rank, peer)
        for hello in hellos:
            if hello.rank not in self._coming:
                # Its memory comes as it is needed: there is work to do.
                self._coming[hello.rank] = hello, self._way_to(hello, populate=False)

    def members(self, workers: int) -> dict[int, str]:
        """So many take part: who was to join does, and ways to those behind the last are closed."""
        for hello, peer in self._coming.values():
            self._take(hello, peer)
        self._coming.clear()
        for rank in [rank for rank in self._peers if rank >= workers]:
            self._leave(rank)
            del self._hellos[rank], self._ways[rank]
        return dict(self._ways)

    def ways_to_coming(self) -> dict[int, str]:
        """How those that join are reached."""
        return {
            rank: "tcp" if isinstance(peer, TcpPeer) else "ring"
            for rank, (_, peer) in self._coming.items()
        }

    def knows(self, rank: int) -> bool:
        """Whether that is the rank of another worker."""
        return rank in self._peers

    def _leave(self, rank: int) -> None:
        """Close the way to a worker, if there is one."""
        peer = self._peers.pop(rank, None)
        self._boards.forget(rank)
        self._loads.forget(rank)
        if isinstance(peer, TcpPeer):
            self._remote.remove(peer)
        if peer is not None:
            self._close(rank, peer)

    def _close(self, rank: int, peer: Peer) -> None:
        self._unproven.pop(rank, None)
        if isinstance(peer, TcpPeer):
            self._sockets.forget(peer.connection)
        peer.close()

    def _by_ring(self, hello: Hello, populate: bool) -> Peer | None:
        try:
            ring = Ring.attach(hello.ring, populate=populate)
            writer = ring.writer(self._doorbell)
        except RingError:
            return None  # its memory is elsewhere, or it could not be woken from here
        return RingPeer(ring, writer, self._rank, self._codec)

    def _by_tcp(self, hello: Hello) -> Peer:
        assert self._config is not None, "not let in yet"
        connection = TcpConnection.connect(
            self._config, hello.address, hello.rank, self._refusals, pin=self._pin
        )
        self._sockets.watch(connection)
        self._unproven[hello.rank] = connection
        return TcpPeer(connection, self._rank, self._codec)

    def reached_all(self) -> bool:
        """Whether all others are proven to be there. Nobody is busy yet, so it cannot take long.

        Raises ConnectionError when one cannot be reached.
        """
        for rank, connection in list(self._unproven.items()):
            connection.check_deadline()
            if connection.closed:
                raise ConnectionError(
                    f"worker {self._rank} cannot reach worker {rank} at"
                    f" {connection.address}: {connection.close_reason}; if a firewall is between"
                    " them, give start() the range of ports= that it lets through"
                )
            if connection.authenticated:
                del self._unproven[rank]
        return not self._unproven

    def build(
        self,
        job: WorkerJob | None,
        seats: tuple[int, ...],
        peers: Peers | None = None,
        before: Core | None = None,
    ) -> Core:
        """A core for what is ours of a job, or of the one of the settings.

        It goes on from the epoch that `peers` names: where a core was `before`, if that knows the
        way back there, else from what is kept of it.
        """
        graph, placement, limits = job or load_job(self._settings.job)
        self.numbers = {instance: n for n, instance in enumerate(wire(graph).ids)}
        if peers is not None and peers.layout is not None:
            deployment = peers.layout.seated(seats).of(graph)
        else:
            deployment = deploy(
                graph, [place if place == NOWHERE else seats[place] for place in placement]
            )
        kept = None if peers is None else restoring(peers, deployment, self._settings.checkpoint)
        if before is not None and peers is not None:
            assert before.cuts is not None
            if not before.cuts.can_go_back_to(peers.epoch):
                before.discard()
                before = None
        self._loads.reset()
        self._core = Core(
            self._rank,
            deployment,
            self._clock_ns,
            self,
            self._doorbell.ring,
            limits,
            self._wall_ns,
            epoch=peers.epoch if peers is not None and self._settings.checkpoint else None,
            going_on=nothing_kept if kept is None else kept.going_on,
            before=before,
            is_near=lambda rank: self._ways.get(rank) == "ring",
            boards=self._boards,
            shares_memory=self._shares_memory,
            loads=self._loads,
        )
        self.set_replay(self.replay)
        if self._settings.count_pairs:
            self._core.count_pairs()
        return self._core

    def _deliver(self, sender: int, parcels: list[Parcel], sent_ns: int, size_bytes: int) -> None:
        assert self._core is not None
        self._core.deliver(sender, parcels, sent_ns, size_bytes)

    def _credited(self, sender: int, gate: int, taken: int, window: int, load: Load) -> None:
        if self._core is not None:
            self._core.credit(gate, taken, window, load)

    def _told_of_state(self, sender: int, message: bytes) -> None:
        if self._core is not None:
            self._core.receive_state(sender, pickle.loads(message))

    def flush(self) -> None:
        """Send what waits, as far as there is room; raises ConnectionError for a lost peer."""
        for peer in self._peers.values():
            peer.flush()
        for remote in self._remote:
            self._sockets.await_room(remote.connection)

    @property
    def pending(self) -> bool:
        """Whether something waits to be sent."""
        return any(peer.pending for peer in self._peers.values())

    def lost(self, error: BaseException) -> tuple[int, str] | None:
        """Which of the others an error is about, and what became of the way there.

        One that was never reached counts if it may be replaced; otherwise it cannot be reached.
        """
        if isinstance(error, ConnectionError):
            for peer in self._remote:
                rank = next(rank for rank, one in self._peers.items() if one is peer)
                if peer.connection.closed and rank not in self._unproven:
                    return rank, str(peer.connection.close_reason)
                if peer.connection.closed and self._settings.recover:
                    return rank, str(error)
        return None

    def close(self) -> None:
        """End every way."""
        self._boards.close()
        self._loads.close()
        self._board.close()
        for peer in (*self._peers.values(), *(peer for _, peer in self._coming.values())):
            peer.close()

    # ---- what the core asks of us ----

    def send(self, peer: int, parcels: list[Any]) -> int:
        """Send a jumbo; see `Peer.send`."""
        return self._peers[peer].send(parcels)

    def credit(self, peer: int, gate: int, taken: int, window: int, load: Load) -> None:
        """Tell a sender what was taken."""
        self._peers[peer].credit(gate, taken, window, load)

    def state(self, peer: int, message: StateMessage) -> bool:
        """Send what is said of keys that move; see `Peer.state`. Raises what pickle raises."""
        return self._peers[peer].state(pickle.dumps(message, 5))

    def check(self, record: Any) -> None:
        """Raise CodecError if a record cannot be sent."""
        self._codec.encode([(0, [(0, 0, [record])])])

    def size(self, records: list[Any]) -> int:
        """About what records would take, as encoded."""
        return size_of(records)
