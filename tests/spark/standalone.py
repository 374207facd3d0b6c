"""A standalone Spark of two hosts on this machine, which are addresses of the loopback."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tailrace.spark.session import QUICK_JVM, from_archive

PATIENCE_S = 120.0
HOSTS = ("127.0.0.2", "127.0.0.3")
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx256m"


def quick_submit() -> str:
    """PYSPARK_SUBMIT_ARGS by which a Spark at a given master has JVMs that start quickly."""
    jvm = f"{QUICK_JVM} {from_archive()}"
    options = ["--driver-java-options", jvm, "--conf", f"spark.executor.extraJavaOptions={jvm}"]
    return shlex.join([*options, "pyspark-shell"])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@contextmanager
def standalone(folder: Path, cores: int = 2) -> Iterator[str]:
    """Start it; gives the master's URL. Its logs and the executors' are in the folder."""
    port, web = free_port(), free_port()
    url = f"spark://127.0.0.1:{port}"
    jars = Path(pyspark.__file__).parent / "jars" / "*"
    java = ["java", *_QUICK.split(), "-cp", str(jars)]
    master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"]
    commands = [[*java, *master, "--port", str(port), "--webui-port", str(web)]]
    for host in HOSTS:
        worker = ["org.apache.spark.deploy.worker.Worker", "--host", host, "--webui-port", "0"]
        room = ["--cores", str(cores), "--memory", "2g", "--work-dir", str(folder / host)]
        commands.append([*java, *worker, *room, url])
    env = {**os.environ, "SPARK_HOME": str(Path(pyspark.__file__).parent)}
    env["SPARK_SCALA_VERSION"] = "2.13"  # which it would look for in a release's folders
    env["PYSPARK_PYTHON"] = sys.executable
    with (folder / "log").open("wb") as log:
        processes = [
            subprocess.Popen(one, env=env, cwd=folder, stdout=log, stderr=log) for one in commands
        ]
        try:
            _await_workers(f"http://127.0.0.1:{web}/json/", processes, folder / "log")
            yield url
        finally:
            for process in reversed(processes):
                process.terminate()
            for process in processes:
                process.wait(PATIENCE_S)


def _await_workers(page: str, processes: list[subprocess.Popen[bytes]], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert all(process.poll() is None for process in processes), log.read_text()[-3000:]
        try:
            with urllib.request.urlopen(page, timeout=5) as answer:
                if answer.read().count(b'"ALIVE"') > len(HOSTS):  # and the master itself
                    return
        except OSError:
            pass
        time.sleep(0.2)
    raise TimeoutError(log.read_text()[-3000:])
