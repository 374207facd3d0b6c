"""Workers on namespace hosts whose clocks count from boots a day apart; where that is allowed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_peers.workloads import Outcome
from harness.arrivals import POISSON
from hosts_parts.bare import TCP, Bare
from hosts_parts.namespaces import Hosts, allowed

REASON = allowed()
DAY_S = 86_400
HOST_NAME = "import socket; print(socket.gethostname())"
pytestmark = pytest.mark.skipif(bool(REASON), reason=f"no namespaces here: {REASON}")


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    """Host 0 and 1 for workers, booted a day apart; 3 has the driver."""
    with Hosts(4, clock_ahead_s=(0, DAY_S, 0, DAY_S // 2)) as hosts:
        yield hosts


def on(hosts: Hosts, number: int, program: str) -> str:
    command = [*hosts.on(number), sys.executable, "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_each_host_has_its_own_name_memory_and_clock(hosts: Hosts) -> None:
    assert on(hosts, 0, HOST_NAME) != on(hosts, 1, HOST_NAME)
    on(hosts, 0, "open('/dev/shm/mine', 'w').close()")
    assert on(hosts, 0, "import os; print(os.listdir('/dev/shm'))") == "['mine']"
    assert on(hosts, 1, "import os; print(os.listdir('/dev/shm'))") == "[]"
    early, late = (float(on(hosts, n, "import time; print(time.monotonic())")) for n in (0, 1))
    assert DAY_S - 3600 < late - early < DAY_S + 3600


def test_latency_between_hosts_that_were_booted_a_day_apart(hosts: Hosts, tmp_path: Path) -> None:
    bare = Bare(hosts, tmp_path)
    try:
        outcome: Outcome = bare.run("wordcount", TCP, 1.5, 500, 0.6, POISSON)
    finally:
        bare.end()
    assert (outcome.lost, outcome.duplicated) == (0, 0)
    assert 0 < outcome.latency_ms["p50"] < 1000 * 3600  # a day would be 24 of these


def test_nothing_is_left_of_hosts_that_are_closed() -> None:
    with Hosts(1) as hosts:
        holder, name = hosts.on(0)[2], on(hosts, 0, HOST_NAME)
        assert Path(f"/proc/{holder}").exists()
        assert name in namespaces()
    assert not Path(f"/proc/{holder}").exists()
    assert name not in namespaces()


def namespaces() -> str:
    command = ["ip", "netns", "list"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
