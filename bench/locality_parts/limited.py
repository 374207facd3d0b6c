"""A standalone Spark cluster of namespace hosts whose links are limited, and cases run on it."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hosts_parts.namespaces import Hosts
from hosts_parts.orders import answered, packed, spark_driver

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
            self._driver = spark_driver(
                self._ends, self._hosts, 1, folder, "locality_parts.driver", servers
            )
        except BaseException:
            self.end()
            raise

    def run(self, command: str, case: Case, warm_s: float, seconds: float) -> dict[str, Any]:
        """What the driver finds."""
        if case.link != self._link:
            self._hosts.limit(case.link)
            self._link = case.link
        self._driver.tell(command, packed((case, warm_s, seconds)))
        return answered(self._driver, warm_s + 2 * seconds + _PATIENCE_S)

    def end(self) -> None:
        """End the driver, the cluster and its hosts."""
        self._ends.close()
