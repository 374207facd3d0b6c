"""A session by Spark Connect: there is no RDD API, and the driver is somewhere else."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from typing import Any

from tailrace.spark.cluster import checked
from tailrace.spark.slots import KEYS, most_slots, scales

_REGISTRATION_S = 10.0
_ANY_PORT = 9
_RANGE_ROWS = 1 << 20


class Connect:
    """See above."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    @property
    def is_local(self) -> bool:
        """Whether the server is on this machine, and its own cluster."""
        return self._is_its_own() and self.host() == "127.0.0.1"

    @property
    def scales(self) -> bool:
        """By the server's settings."""
        return not self._is_its_own() and scales(self._settings())

    @property
    def stopped(self) -> bool:
        """Whether the session has been closed on this side."""
        return bool(self._spark.is_stopped)

    def master(self) -> str:
        """What the server's settings say."""
        return self.setting("spark.master")

    def setting(self, name: str) -> str:
        """That of the server."""
        return str(self._spark.conf.get(name, ""))

    def enabled(self, name: str) -> bool:
        """Likewise."""
        return self.setting(name).lower() == "true"

    def slots(self, wanted: int) -> int:
        """The number of partitions that Spark gives a range, which is its parallelism.

        Where it scales by itself: as many as are wanted, up to the most.
        """
        most = self.most()
        if self.scales:
            return wanted if most is None else min(wanted, most)
        deadline = time.monotonic() + _REGISTRATION_S
        while True:
            parts = self._spark.range(_RANGE_ROWS).selectExpr("spark_partition_id() as part")
            slots: int = parts.distinct().count()
            enough = slots >= wanted or slots == most
            if enough or time.monotonic() > deadline or self._is_its_own():
                return slots
            time.sleep(0.5)

    def most(self) -> int | None:
        """By the server's settings."""
        return most_slots(self.master(), self._settings())

    def _settings(self) -> dict[str, str]:
        found = {key: self._spark.conf.get(key, None) for key in KEYS}
        return {key: value for key, value in found.items() if value is not None}

    def _is_its_own(self) -> bool:
        return self.master().startswith("local[")

    def host(self) -> str:
        """The address of the route to the server."""
        server = socket.gethostbyname(self._spark.client.host)
        if ip_address(server).is_loopback:
            return "127.0.0.1"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((server, _ANY_PORT))  # sends nothing
            host: str = probe.getsockname()[0]
            return host

    def name(self, group: str, description: str) -> None:
        """Add a tag; tags belong to the thread that adds them."""
        self._spark.addTag(group)

    @contextmanager
    def python(self) -> Iterator[None]:
        """Nothing: the server decides which Python runs, and with what."""
        yield

    def ask(self, tasks: int, question: Callable[[], str]) -> list[str]:
        """As tasks of a query."""
        call = checked(question)

        def task(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa

            for _ in batches:
                pass
            yield pa.RecordBatch.from_pydict({"answer": pa.array([call()], pa.string())})

        stage = self._spark.range(0, tasks, 1, tasks)
        asked = stage.mapInArrow(task, "answer string", barrier=not self.scales)
        return [row[0] for row in asked.collect()]

    def cancel(self, group: str) -> None:
        """Interrupt what has the tag."""
        with suppress(Exception):
            self._spark.interruptTag(group)

    def silent_hosts(self) -> list[str]:
        """Not known on this side of the server."""
        return []

    def forget(self, hosts: list[str]) -> None:
        """Not possible from this side of the server."""
