"""A Spark in this process, set up for short starts and small machines."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from tailrace.control.cores import whole_cores
from tailrace.spark import archive
from tailrace.spark.cluster import cluster_of

_QUIET = Path(__file__).with_name("log4j2.properties")
QUICK_JVM = f'-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "-Dlog4j2.configurationFile=file:{_QUIET}"'
"""Options for a JVM that starts quickly and says little."""


def local_spark(slots: int | None = None) -> Any:
    """A SparkSession on this machine with so many task slots (default: one per usable core).

    Returns the active session if there is one. Starts in a quarter of the time of Spark's default:
    no web UI, the quick compiler only, no parallel garbage collection, workers forked from a
    process that has everything imported (`tailrace.spark.daemon`), and, once `tailrace warm-up` has
    been called, the JVM's classes from a file in the user's cache folder.
    """
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise RuntimeError(
            "Spark needs Java 17 or later; for example: apt-get install openjdk-17-jre-headless"
        )
    from pyspark import SparkContext

    if SparkContext._gateway is not None:  # there is a JVM, and its options stay what they are
        return new_session(slots, "")
    return new_session(slots, from_archive())


def find_spark(master: str | None = None, slots: int | None = None) -> Any:
    """The session that a command runs on: the active one, or that of spark-submit.

    If there is none, a new one at `master`, or a local one with so many task slots.
    """
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        session = _made(SparkSession.builder)
        there = cluster_of(session).master()
        if master not in (None, there):
            raise ValueError(
                f"--master is {master}, but Spark runs at {there} already; leave it out"
            )
        return session
    if master is None:
        return local_spark(slots)
    # Executors need some seconds to register, and Spark would look for their slots again only
    # after fifteen.
    return _made(
        SparkSession.builder.master(master)
        .appName("tailrace")
        .config("spark.scheduler.barrier.maxConcurrentTasksCheck.interval", "1s")
    )


def local_archive() -> Path | None:
    """Where the JVM's classes are or would be kept for `local_spark`."""
    return archive.archive_path(QUICK_JVM)


def from_archive() -> str:
    """The options of a JVM with `QUICK_JVM` that has it start from that archive, if it is there."""
    path = local_archive()
    return (path and archive.use(path)) or ""


def new_session(slots: int | None, jvm_options: str) -> Any:
    """The active session, or one with more options for the JVM than `local_spark` gives it."""
    from pyspark.sql import SparkSession

    python = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Executors that may not write bytecode compile everything they import, every time.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    builder = (
        SparkSession.builder.master(f"local[{slots or whole_cores()}]")
        .appName("tailrace")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", f"{QUICK_JVM} {jvm_options}")
        .config("spark.python.task.killTimeout", "100ms")
        .config("spark.sql.shuffle.partitions", "2")
    )
    if python == sys.executable:  # another Python may have no tailrace
        builder = builder.config("spark.python.daemon.module", "tailrace.spark.daemon")
    session = _made(builder)
    session.sparkContext.setLogLevel("OFF")
    return session


def _made(builder: Any) -> Any:
    """The builder's session, with Ctrl-C as it was: Spark's would end workers that still drain."""
    before = signal.getsignal(signal.SIGINT)
    session = builder.getOrCreate()
    if before is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)
    return session
