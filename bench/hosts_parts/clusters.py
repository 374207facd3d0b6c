"""The same workloads on standalone Spark clusters of namespace hosts, as a user would run them."""

import os
import sys
from contextlib import ExitStack
from pathlib import Path

from engine_peers.workloads import Outcome
from harness.arrivals import EVEN
from harness.process import Peer, hear
from hosts_parts.bare import RING, TCP, TCP_3
from hosts_parts.namespaces import Hosts, SparkCluster
from hosts_parts.station import packed

_CLUSTERS = {RING: (1, 2), TCP: (2, 1), TCP_3: (3, 1)}
"""Hosts with a Spark worker, and the cores that each offers."""
_START_S = 240.0
_PATIENCE_S = 120.0


class Clusters:
    """One cluster for each way that workers reach each other; alive for the whole benchmark."""

    def __init__(self, folder: Path) -> None:
        self._ends = ExitStack()
        self._drivers: dict[str, Peer] = {}
        try:
            for number, (where, (count, cores)) in enumerate(_CLUSTERS.items()):
                self._start(where, count, cores, folder / f"cluster-{number}")
        except BaseException:
            self.end()
            raise

    def _start(self, where: str, count: int, cores: int, folder: Path) -> None:
        folder.mkdir()
        hosts = self._ends.enter_context(Hosts(1 + count))
        cluster = SparkCluster(hosts, cores, folder)
        self._ends.callback(cluster.close)
        path = os.pathsep.join(filter(None, sys.path))
        driver = Peer(
            [*hosts.on(0), sys.executable, "-m", "hosts_parts.station"],
            folder,
            {**cluster.environment, "PYTHONPATH": path, "SPARK_LOCAL_IP": hosts.addresses[0]},
        )
        self._ends.callback(driver.end)
        hear(driver, timeout_s=_START_S)
        driver.tell("spark", cluster.url, hosts.addresses[0], folder)
        if error := hear(driver, timeout_s=_START_S)[0].get("error"):
            raise RuntimeError(error)
        self._drivers[where] = driver

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
        order = {
            "workload": workload,
            "seconds": seconds,
            "rate_per_s": rate_per_s,
            "warm_s": warm_s,
            "pacing": pacing,
            "workers": 3 if where == TCP_3 else 2,
        }
        driver = self._drivers[where]
        driver.tell("run", packed(order))
        answer = hear(driver, timeout_s=seconds + _PATIENCE_S)[0]
        if answer.get("error"):
            raise RuntimeError(f"{workload} by {where}: {answer['error']}")
        return Outcome(**answer["found"])

    def end(self) -> None:
        """End drivers and clusters."""
        self._ends.close()
