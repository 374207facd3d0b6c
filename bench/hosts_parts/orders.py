"""Orders to a process on one of the hosts: a line each, a command and its words.

A word may be a pickle in base 64. Each order is answered by one JSON object in a line.
"""

import base64
import json
import os
import pickle
import sys
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from harness.process import Peer, hear
from hosts_parts.namespaces import Hosts, SparkCluster

_START_S = 240.0


def packed(value: Any) -> str:
    """As one word; lambdas, too."""
    return base64.b64encode(cloudpickle.dumps(value)).decode()


def unpacked(word: str) -> Any:
    """What was packed."""
    return pickle.loads(base64.b64decode(word))


class Obedient(Protocol):
    """Its methods are the commands; each returns its answer."""

    def end(self) -> None:
        """There are no more orders."""


def obey(who: Obedient) -> None:
    """Have all orders done that come, until there are no more lines."""
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        command, *words = line.split()
        try:
            answer = getattr(who, command)(*words)
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), flush=True)
    who.end()


def answered(peer: Peer, timeout_s: float) -> dict[str, Any]:
    """What a process answers; raises what went wrong there."""
    answer = hear(peer, timeout_s=timeout_s)[0]
    if answer.get("error"):
        raise RuntimeError(answer["error"])
    return answer


def session(master: str, host: str, name: str) -> SparkSession:
    """A small Spark session on that master, with its driver at this host's address."""
    settings = {
        "spark.driver.host": host,
        "spark.driver.bindAddress": host,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.executor.memory": "512m",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
        "spark.python.daemon.module": "tailrace.spark.daemon",
    }
    return SparkSession.builder.master(master).appName(name).config(map=settings).getOrCreate()


def spark_driver(
    ends: ExitStack, hosts: Hosts, cores: int, folder: Path, module: str, word: object
) -> Peer:
    """The driver of a Spark application, on the first host; the others are a cluster.

    Each of those offers so many cores. The `module` obeys on the first; its first order is `spark`,
    with master, address and that word. Cluster and driver end with `ends`.
    """
    cluster = SparkCluster(hosts, cores, folder)
    ends.callback(cluster.close)
    path = os.pathsep.join(filter(None, sys.path))
    address = hosts.addresses[0]
    driver = Peer(
        [*hosts.on(0), sys.executable, "-m", module],
        folder,
        {**cluster.environment, "PYTHONPATH": path, "SPARK_LOCAL_IP": address},
    )
    ends.callback(driver.end)
    hear(driver, timeout_s=_START_S)
    driver.tell("spark", cluster.url, address, word)
    answered(driver, _START_S)
    return driver
