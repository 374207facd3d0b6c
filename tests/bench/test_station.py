"""What a driver on a host answers is what the benchmark reads, whatever it pickles by value."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from engine_peers.workloads import Outcome
from hosts_parts.bare import TCP
from hosts_parts.clusters import Clusters

DRIVER = """
import json, sys
from pyspark import cloudpickle
from engine_peers import workloads
from hosts_parts.station import Station

class Engine:  # in place of Spark
    def run(self, **order):
        return workloads.Outcome(1_000.0, 2.5, 0, 1, {"p50": 0.1, "p99": 0.5})

cloudpickle.register_pickle_by_value(workloads)  # its workers do not have the module
station = Station()
station._spark = Engine()
command, word = sys.stdin.readline().split()
print(json.dumps(getattr(station, command)(word)))
"""


class Driver:
    """A station in a process of its own."""

    def tell(self, *words: str) -> None:
        done = subprocess.run(
            [sys.executable, "-c", DRIVER],
            input=" ".join(words),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=False,
        )
        assert not done.returncode, done.stderr
        self.answer: Any = json.loads(done.stdout)


def test_the_outcome_of_a_run_on_a_cluster_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hosts_parts.clusters.hear", lambda driver, timeout_s: [driver.answer])
    clusters = Clusters.__new__(Clusters)
    clusters._drivers = {TCP: Driver()}  # type: ignore[dict-item]
    found = clusters.run("chain", TCP, 1.0, 0, 0.0)
    assert found == Outcome(1_000.0, 2.5, 0, 1, {"p50": 0.1, "p99": 0.5})
