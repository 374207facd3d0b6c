"""A standalone Spark cluster of two namespace hosts, a worker each, and applications run on it."""

import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.process import Peer, hear
from hosts_parts.namespaces import Hosts, SparkCluster
from hosts_parts.station import packed
from tailrace.planner.planning import machine_of

HOSTS = 2
_START_S = 240.0
_PATIENCE_S = 200.0


@dataclass(frozen=True)
class Case:
    """An application, and its load."""

    application: str
    rate_per_s: float
    parallelism: int


class Hosted:
    """See above; alive for the whole benchmark. Raises NotAllowedError where it may not."""

    def __init__(self, folder: Path) -> None:
        self._ends = ExitStack()
        self._folder = folder
        # Measured here, once: a new host would have to measure what it is, and so each time.
        self._machine = machine_of(None)
        try:
            hosts = self._ends.enter_context(Hosts(1 + HOSTS))
            cluster = SparkCluster(hosts, 1, folder)
            self._ends.callback(cluster.close)
            path = os.pathsep.join(filter(None, sys.path))
            address = hosts.addresses[0]
            self._driver = Peer(
                [*hosts.on(0), sys.executable, "-m", "online_parts.driver"],
                folder,
                {**cluster.environment, "PYTHONPATH": path, "SPARK_LOCAL_IP": address},
            )
            self._ends.callback(self._driver.end)
            hear(self._driver, timeout_s=_START_S)
            self._driver.tell("spark", cluster.url, address, HOSTS)
            _checked(hear(self._driver, timeout_s=_START_S)[0])
        except BaseException:
            self.end()
            raise

    def run(self, case: Case, adapt_s: float, warm_s: float, seconds: float) -> dict[str, Any]:
        """What the driver finds."""
        order = (case, adapt_s, warm_s, seconds, self._machine, str(self._folder))
        self._driver.tell("online", packed(order))
        return _checked(hear(self._driver, timeout_s=2 * (warm_s + seconds) + _PATIENCE_S)[0])

    def end(self) -> None:
        """End the driver, the cluster and its hosts."""
        self._ends.close()


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if answer.get("error"):
        raise RuntimeError(answer["error"])
    return answer
