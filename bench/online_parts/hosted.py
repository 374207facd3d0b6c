"""A standalone Spark cluster of two namespace hosts, a worker each, and applications run on it."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hosts_parts.namespaces import Hosts
from hosts_parts.orders import answered, packed, spark_driver
from tailrace.planner.planning import machine_of

HOSTS = 2
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
            self._driver = spark_driver(self._ends, hosts, 1, folder, "online_parts.driver", HOSTS)
        except BaseException:
            self.end()
            raise

    def run(self, case: Case, adapt_s: float, warm_s: float, seconds: float) -> dict[str, Any]:
        """What the driver finds."""
        order = (case, adapt_s, warm_s, seconds, self._machine, str(self._folder))
        self._driver.tell("online", packed(order))
        return answered(self._driver, 2 * (warm_s + seconds) + _PATIENCE_S)

    def end(self) -> None:
        """End the driver, the cluster and its hosts."""
        self._ends.close()
