"""The same workloads on standalone Spark clusters of namespace hosts, as a user would run them."""

from contextlib import ExitStack
from pathlib import Path

from engine_peers.workloads import Outcome
from harness.arrivals import EVEN
from harness.process import Peer, hear
from hosts_parts.bare import RING, TCP, TCP_3
from hosts_parts.namespaces import Hosts
from hosts_parts.orders import packed, spark_driver

_CLUSTERS = {RING: (1, 2), TCP: (2, 1), TCP_3: (3, 1)}
"""Hosts with a Spark worker, and the cores that each offers."""
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
        self._drivers[where] = spark_driver(
            self._ends, hosts, cores, folder, "hosts_parts.station", folder
        )

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
