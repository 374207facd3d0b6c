"""Workers as Spark barrier tasks."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from tailrace.control.coordinator import Coordinator
from tailrace.control.protocol import Settings


def run_workers(
    context: Any, settings: Settings, group: str, description: str, coordinator: Coordinator
) -> None:
    """Submit the job that is the workers, from a thread of its own.

    Spark places and starts them; they find each other through the coordinator. If Spark gives up,
    the coordinator hears of it, and when the coordinator is done the tasks end by themselves.
    """
    if is_local(context):
        context.pythonExec = sys.executable  # the workers of a local Spark run what we run

    def submit() -> None:
        try:
            context.setJobGroup(group, f"tailrace: {description}", interruptOnCancel=True)
            tasks = context.parallelize(range(settings.workers), settings.workers).barrier()
            tasks.mapPartitions(lambda _: work(settings)).collect()
            coordinator.fail("the workers ended before the job did")
        except Exception as error:
            coordinator.fail(f"Spark ended the workers: {gist(error)}", str(error))

    threading.Thread(target=submit, name="tailrace-spark-job", daemon=True).start()

    def watch() -> None:
        coordinator.join()
        # Only what did not end by itself is left to cancel, and nothing if Spark has been stopped.
        with suppress(Exception):
            context.cancelJobGroup(group)

    threading.Thread(target=watch, name="tailrace-watch", daemon=True).start()


def is_local(context: Any) -> bool:
    """Whether Spark runs in this process: the workers are then on this machine."""
    master: str = context.master
    return master == "local" or master.startswith("local[")


def work(settings: Settings) -> Iterator[int]:
    """One task: run the worker of this rank."""
    from pyspark import BarrierTaskContext

    from tailrace.control.worker import Worker

    task = BarrierTaskContext.get()
    rank = task.partitionId()
    executor = task.getTaskInfos()[rank].address
    Worker(settings, rank, executor).run()
    return iter((rank,))


def gist(error: BaseException) -> str:
    """What went wrong, out of Spark's many words: the Python error, if there is one."""
    text = str(error)
    found = re.findall(r"^(?:\w+\.)*\w+(?:Error|Exception): .+$", text, re.MULTILINE)
    python = [line for line in found if not line.startswith(("org.", "java.", "py4j."))]
    line = (python or found or text.splitlines() or [repr(error)])[0]
    if "No module named 'tailrace'" in line:
        line += " (on the executors; install it there, or let PYSPARK_PYTHON name a Python with it)"
    return line
