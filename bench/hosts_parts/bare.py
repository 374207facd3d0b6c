"""Workers, and handmade pipelines, in processes on the hosts, told what to do one run at a time.

The workers are those that Spark's tasks run, with their coordinator on a host of its own; only
Spark itself is left out, which starts them and then waits.
"""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from engine_peers import handmade
from engine_peers.handmade import Task, Variant
from engine_peers.on_tailrace import built, latencies_ms, outcome_of, watched_ends
from engine_peers.workloads import Outcome
from harness.arrivals import EVEN, pace_of
from harness.process import Peer, hear
from hosts_parts.namespaces import Hosts
from hosts_parts.orders import packed, unpacked
from tailrace.control.protocol import Settings
from tailrace.runtime.core import DEFAULT_LIMITS

RING, TCP, TCP_3 = "ring", "tcp", "tcp, 3 hosts"
WHERE = {RING: (0, 1), TCP: (1, 2), TCP_3: (1, 2, 3)}
"""The stations of the workers, by how these reach each other: two on one host, or one on each."""
_HOST_OF = (0, 0, 1, 2, 3)
"""Of each station; the last one is the driver's."""
_DRIVER = len(_HOST_OF) - 1
_START_S = 30.0
_PATIENCE_S = 40.0


class Bare:
    """See above; alive for the whole benchmark."""

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self._hosts = hosts
        self._folder = folder
        self._ends = ExitStack()
        self._stations: list[Peer] = []
        self._runs = 0
        command = [sys.executable, "-m", "hosts_parts.station"]
        try:
            for host in _HOST_OF:
                station = Peer([*hosts.on(host), *command], folder)
                self._ends.callback(station.end)
                self._stations.append(station)
            hear(*self._stations, timeout_s=_START_S)
        except BaseException:
            self.end()
            raise

    def run(
        self,
        workload: str,
        where: str,
        seconds: float,
        rate_per_s: float,
        warm_s: float,
        pacing: str = EVEN,
    ) -> Outcome:
        """Run a workload, unpaced (rate 0) or paced; the first `warm_s` do not count."""
        self._runs += 1
        folder = self._folder / f"run-{self._runs}"
        folder.mkdir()
        stations = WHERE[where]
        pace = pace_of(pacing, rate_per_s) if rate_per_s else None
        ends = watched_ends(workload, seconds, pace, folder)
        topology, placement = built(workload, *ends, len(stations))
        driver = self._stations[_DRIVER]
        told = driver.ask("drive", self._hosts.addresses[_HOST_OF[_DRIVER]], len(stations))
        settings = Settings(
            workers=len(stations),
            coordinator=(told["address"][0], told["address"][1]),
            secret=bytes.fromhex(told["secret"]),
            job=cloudpickle.dumps((topology.graph, placement, DEFAULT_LIMITS)),
        )
        for rank, station in enumerate(stations):
            self._stations[station].tell("work", packed((settings, rank, str(station))))
        driver.tell("watch", packed((topology.graph, warm_s, seconds)))
        everybody = [driver, *(self._stations[station] for station in stations)]
        answers = hear(*everybody, timeout_s=seconds + _PATIENCE_S)
        for answer in answers:
            if answer.get("error"):
                raise RuntimeError(f"{workload} by {where}: {answer['error']}")
        summary, warm_summary, ways = unpacked(answers[0]["found"])
        if ways != [where[:4].rstrip(",")]:
            raise RuntimeError(f"{workload} should have gone by {where}; it went by {ways}")
        outcome, _, _ = outcome_of(folder, workload, summary, seconds, warm_s)
        if rate_per_s:
            outcome.latency_ms = latencies_ms(summary.latency_since(warm_summary))
        return outcome

    def run_handmade(
        self,
        variant: Variant,
        seconds: float,
        rate_per_s: float,
        warm_s: float,
        pacing: str = EVEN,
    ) -> Outcome:
        """The same for a handmade pipeline between two hosts."""
        self._runs += 1
        pair = WHERE[TCP]
        addresses = tuple(self._hosts.addresses[_HOST_OF[station]] for station in pair)
        task, port = Task(variant, seconds, rate_per_s, pacing), 20_000 + 2 * self._runs
        for rank, station in enumerate(pair):
            self._stations[station].tell("hand", packed((task, rank, addresses, port)))
        halves = [self._stations[station] for station in pair]
        answers: list[dict[str, Any]] = []
        for answer in hear(*halves, timeout_s=seconds + _PATIENCE_S):
            if answer.get("error"):
                raise RuntimeError(f"handmade {variant.label}: {answer['error']}")
            answers.append(unpacked(answer["found"]))
        return handmade.outcome_of(variant, answers, seconds, warm_s)

    def end(self) -> None:
        """End all stations."""
        self._ends.close()


def variants(transports: Sequence[str]) -> list[Variant]:
    """All ways to write a pipeline between two hosts by hand."""
    return [
        Variant(workload, shape, transport, batch)
        for workload, shape in (
            ("wordcount", "line"),
            ("wordcount", "both"),
            ("chain", "to and fro"),
        )
        for transport in transports
        for batch in (1, 64, 512)
    ]
