"""A standalone Spark cluster of namespace hosts whose links are limited, and cases run on it."""

import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.process import Peer, hear
from hosts_parts.namespaces import Hosts, SparkCluster
from hosts_parts.station import packed

_START_S = 240.0
_PATIENCE_S = 150.0


@dataclass(frozen=True)
class Case:
    """One setting of the paper's application."""

    servers: int
    padding_bytes: int
    locality: float
    routing: str
    link: str = "1gbit"

    @property
    def label(self) -> str:
        """As a key of the JSON."""
        return (
            f"{self.routing}, {self.servers} servers, {self.padding_bytes} B,"
            f" locality {self.locality:.0%}, {self.link}"
        )


class Limited:
    """See above; alive for the whole benchmark. Raises NotAllowedError where it may not."""

    def __init__(self, servers: int, folder: Path) -> None:
        self._ends = ExitStack()
        self._link = ""
        try:
            self._hosts = self._ends.enter_context(Hosts(1 + servers))
            self._hosts.limit("1gbit")
            self._hosts.limit("")
            cluster = SparkCluster(self._hosts, 1, folder)
            self._ends.callback(cluster.close)
            path = os.pathsep.join(filter(None, sys.path))
            address = self._hosts.addresses[0]
            self._driver = Peer(
                [*self._hosts.on(0), sys.executable, "-m", "locality_parts.driver"],
                folder,
                {**cluster.environment, "PYTHONPATH": path, "SPARK_LOCAL_IP": address},
            )
            self._ends.callback(self._driver.end)
            hear(self._driver, timeout_s=_START_S)
            self._driver.tell("spark", cluster.url, address)
            _checked(hear(self._driver, timeout_s=_START_S)[0])
        except BaseException:
            self.end()
            raise

    def run(self, command: str, case: Case, warm_s: float, seconds: float) -> dict[str, Any]:
        """What the driver finds."""
        if case.link != self._link:
            self._hosts.limit(case.link)
            self._link = case.link
        self._driver.tell(command, packed((case, warm_s, seconds)))
        return _checked(hear(self._driver, timeout_s=warm_s + 2 * seconds + _PATIENCE_S)[0])

    def end(self) -> None:
        """End the driver, the cluster and its hosts."""
        self._ends.close()


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if answer.get("error"):
        raise RuntimeError(answer["error"])
    return answer
