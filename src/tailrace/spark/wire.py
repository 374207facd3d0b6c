"""How a job's own connections are protected, and where they may listen: by Spark's settings."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tailrace.spark.cluster import Cluster
from tailrace.transport.listener import Ports, check_ports

_LOG = logging.getLogger(__name__)

SPARK_IS_ENCRYPTED = (
    "spark.network.crypto.enabled",
    "spark.authenticate.enableSaslEncryption",
    "spark.ssl.rpc.enabled",
)
"""With any of these, what Spark sends its tasks cannot be read on the way."""

_WANTS_TLS = (*SPARK_IS_ENCRYPTED, "spark.ssl.enabled")
PORTS = "spark.tailrace.ports"


@dataclass(frozen=True)
class Wire:
    """Whether records are encrypted between workers, and the ports to listen at."""

    tls: bool
    ports: Ports | None


OPEN = Wire(tls=False, ports=None)


def wire_of(cluster: Cluster, tls: bool | None = None, ports: Ports | None = None) -> Wire:
    """What was asked for, or what Spark's settings say.

    Says in one line if Spark's own wire is open, on clusters of several machines.
    """
    if tls not in (None, True, False):
        raise TypeError(f"tls is {tls!r}; it must be True or False, or None for what Spark does")
    chosen = any(map(cluster.enabled, _WANTS_TLS)) if tls is None else tls
    if not cluster.is_local and not any(map(cluster.enabled, SPARK_IS_ENCRYPTED)):
        _LOG.warning(
            "Spark's own wire is open: who listens to it sees the topology%s, and who can connect"
            " to the workers' hosts and has seen it can join the job. Set"
            " spark.network.crypto.enabled and spark.authenticate to close it",
            "" if chosen else " and all records",
        )
    return Wire(chosen, check_ports(ports) or _ports_in(cluster.setting(PORTS)))


def _ports_in(text: str) -> Ports | None:
    """A range as `40000-40100`.

    >>> _ports_in("40000-40100")
    (40000, 40100)
    """
    if not text:
        return None
    first, _, last = text.partition("-")
    try:
        return check_ports((int(first), int(last)))
    except ValueError as error:
        raise ValueError(f"{PORTS} is {text!r}; it must be a range like 40000-40100") from error
