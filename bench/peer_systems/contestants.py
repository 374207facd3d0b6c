"""The systems that are compared: each runs a workload when asked, and says how it went."""

import json
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

from engine_peers.handmade import VARIANTS, Variant
from engine_peers.handmade import Pair as HandmadePair
from harness.process import Peer, PeerError, hear
from peer_systems.feed import LATE_FACTOR, Order
from peer_systems.install import python_of, why_missing
from peer_systems.told import Measured, measured

START_TIMEOUT_S = 120.0
DRAIN_TIMEOUT_S = 120.0
BUSY_SHARE = 0.02
"""A process that used less of the run's CPU time than this only waited."""
BENCH = Path(__file__).resolve().parents[1]


class Contestant(ABC):
    """One system, alive from `start` to `end`; PeerError when it cannot go on."""

    key: str
    label: str
    stretch = 1.0
    """Runs take so many times as long, for systems that need it to get going."""
    all_rounds = True
    """Whether it takes part in every round, or its runs are too long for that."""

    @abstractmethod
    def start(self, folder: Path) -> None:
        """Start whatever lives for the whole benchmark."""

    @abstractmethod
    def run(self, order: Order, warm_s: float, tuning: str) -> Measured:
        """Run a workload; the first `warm_s` do not count."""

    @abstractmethod
    def end(self) -> None:
        """End what was started, which may be nothing or only a part; a second time does nothing."""

    def tunings(self, workload: str) -> Sequence[str]:
        """What to try once at full speed, to go on with the fastest."""
        return ("",)


class Tailrace(Contestant):
    """On a local Spark with two workers, metrics, audit and flow control on."""

    key, label = "tailrace", "Tailrace"

    def start(self, folder: Path) -> None:
        from engine_peers.on_tailrace import OnSpark

        inside = folder / "tailrace"
        inside.mkdir()
        self._on_spark = OnSpark(inside)

    def run(self, order: Order, warm_s: float, tuning: str) -> Measured:
        run = self._on_spark.run
        return Measured.of(run(order.workload, order.seconds, order.rate_per_s, warm_s), 2)

    def end(self) -> None:
        if hasattr(self, "_on_spark"):
            self._on_spark.end()


class Handmade(Contestant):
    """Two processes with pyzmq between them, some records per message."""

    def __init__(self, batch: int) -> None:
        self.key = f"handmade_{batch}"
        self.label = f"pyzmq, {batch} per message"
        self._batch = batch

    def start(self, folder: Path) -> None:
        inside = folder / self.key
        inside.mkdir()
        self._pair = HandmadePair(inside)

    def _variants(self, workload: str) -> dict[str, Variant]:
        return {
            variant.shape: variant
            for variant in VARIANTS
            if (variant.workload, variant.transport, variant.batch)
            == (workload, "zmq", self._batch)
        }

    def tunings(self, workload: str) -> Sequence[str]:
        """Its shapes."""
        return tuple(self._variants(workload))

    def run(self, order: Order, warm_s: float, tuning: str) -> Measured:
        variant = self._variants(order.workload)[tuning]
        return Measured.of(self._pair.run(variant, order.seconds, order.rate_per_s, warm_s), 2)

    def end(self) -> None:
        if hasattr(self, "_pair"):
            self._pair.end()


class Hosted(Contestant):
    """A system in a virtual environment of its own; its processes obey orders."""

    environment: str
    module: str
    hosts = 1

    def start(self, folder: Path) -> None:
        if problem := why_missing(self.environment):
            raise PeerError(problem)
        python = python_of(self.environment)
        path = os.pathsep.join([str(python.parent), os.environ.get("PATH", os.defpath)])
        # Not our own environment, nor anything that points to its packages.
        variables = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV", "FLINK"))
        }
        variables |= {"PYTHONPATH": str(BENCH), "PATH": path, "TMPDIR": str(folder)}
        variables["JAVA_TOOL_OPTIONS"] = f"-Djava.io.tmpdir={folder}"
        command = [str(python), "-m", f"peer_systems.{self.module}"]
        self._peers: list[Peer] = []
        for _ in range(self.hosts):
            self._peers.append(Peer(command, folder, variables))
        hear(*self._peers, timeout_s=START_TIMEOUT_S)

    def arguments(self, rank: int, addresses: list[str], tuning: str) -> dict[str, object]:
        """What this system's processes want to know beside the order."""
        return {}

    def run(self, order: Order, warm_s: float, tuning: str) -> Measured:
        before = self._cpu_ticks()
        addresses = free_addresses(self.hosts) if self.hosts > 1 else []
        for rank, peer in enumerate(self._peers):
            peer.tell(json.dumps(asdict(order) | self.arguments(rank, addresses, tuning)))
        most_s = LATE_FACTOR * order.seconds + DRAIN_TIMEOUT_S
        for answer in hear(*self._peers, timeout_s=most_s):
            if "error" in answer:
                raise PeerError(answer["error"])
        used = [ticks - before.get(pid, 0) for pid, ticks in self._cpu_ticks().items()]
        busy = sum(ticks > BUSY_SHARE * sum(used) for ticks in used)
        cpu_s = sum(used) / os.sysconf("SC_CLK_TCK")
        return replace(measured(order, warm_s, busy), cpu_s=cpu_s)

    def _cpu_ticks(self) -> dict[int, int]:
        return {pid: ticks for peer in self._peers for pid, ticks in peer.cpu_ticks().items()}

    def end(self) -> None:
        with ExitStack() as ends:
            for peer in getattr(self, "_peers", ()):
                ends.callback(peer.end)


class Bytewax(Hosted):
    """One worker in each of its processes."""

    environment, module = "bytewax", "bytewax_peer"

    def __init__(self, hosts: int) -> None:
        self.key = f"bytewax_{hosts}"
        self.label = f"Bytewax, {hosts} process{'es' if hosts > 1 else ''}"
        self.hosts = hosts

    def tunings(self, workload: str) -> Sequence[str]:
        """How many records its source hands out at once."""
        return ("16", "64", "256") if workload == "wordcount" else ("64", "512", "2048")

    def arguments(self, rank: int, addresses: list[str], tuning: str) -> dict[str, object]:
        return {"rank": rank, "addresses": addresses, "batch": int(tuning)}


class Flink(Hosted):
    """In thread mode, with its mini cluster."""

    key, label, environment, module = "pyflink", "PyFlink, thread mode", "flink", "flink_peer"
    stretch = 2.5


class Spark(Hosted):
    """Structured Streaming in micro-batches on local[2]."""

    key, label, environment, module = "spark", "Spark micro-batch", "spark", "spark_peer"
    stretch = 6.0
    all_rounds = False

    def tunings(self, workload: str) -> Sequence[str]:
        """How it counts words."""
        return (
            ("applyInPandasWithState", "transformWithState") if workload == "wordcount" else ("",)
        )

    def arguments(self, rank: int, addresses: list[str], tuning: str) -> dict[str, object]:
        return {"counting": tuning}


def free_addresses(count: int) -> list[str]:
    """Addresses that nobody listens on now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]


def contestants() -> list[Contestant]:
    """All, Tailrace first: the others are compared with it."""
    return [Tailrace(), Handmade(1), Handmade(64), Bytewax(1), Bytewax(2), Flink(), Spark()]
