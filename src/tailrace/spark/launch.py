"""Workers as Spark barrier tasks."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from functools import partial

from tailrace.connectors.memory import Collect
from tailrace.control.coordinator import FAILED, Coordinator
from tailrace.control.protocol import Settings
from tailrace.graph.model import Graph
from tailrace.runtime.source import SinkLogic
from tailrace.spark.cluster import Cluster, work

_LOG = logging.getLogger(__name__)
_SOON_S = 10.0
"""When workers should be there, even if Spark has to start Python first."""
_GRACE_S = 5.0
"""How long Spark's tasks may take to end."""
_AGAIN_S = 0.2


def run_workers(
    cluster: Cluster,
    settings: Settings,
    group: str,
    description: str,
    coordinator: Coordinator,
    on_end: Callable[[], None],
) -> None:
    """Submit the job that is the workers, from a thread of its own.

    Spark places and starts them; they find each other through the coordinator. If Spark gives up,
    the coordinator hears of it, and when the coordinator is done the tasks end by themselves. After
    a failure, or when some are still to start, they are cancelled, or Spark would try them again.
    `on_end` is called when Spark's job is over, or does not end in spite of that. Workers that
    Spark does not start soon are warned of, once.
    """

    def submit() -> None:
        try:
            cluster.name(group, f"tailrace: {description}")
            cluster.ask(settings.workers, partial(work, settings))
            coordinator.fail("the workers ended before the job did")
        except Exception as error:
            coordinator.fail(f"Spark ended the workers: {gist(error)}", str(error))

    tasks = threading.Thread(target=submit, name="tailrace-spark-job", daemon=True)
    tasks.start()

    def cancel() -> None:
        while tasks.is_alive():  # what is not yet submitted cannot be cancelled
            cluster.cancel(group)
            tasks.join(_AGAIN_S)

    def watch() -> None:
        if not coordinator.started.wait(_SOON_S):
            missing = settings.workers - len(coordinator.roster.hellos)
            if missing:
                _LOG.warning(
                    "%d of %d workers of %r have not started after %g s: other jobs may hold"
                    " Spark's task slots. It starts when they end; or stop one, or start Spark"
                    " with more slots",
                    missing,
                    settings.workers,
                    description,
                    _SOON_S,
                )
        coordinator.join()
        roster = coordinator.roster
        if roster.phase != FAILED and len(roster.hellos) == settings.workers:
            tasks.join(_GRACE_S)
        if tasks.is_alive():
            threading.Thread(target=cancel, name="tailrace-cancel", daemon=True).start()
            tasks.join(_GRACE_S)
        on_end()

    threading.Thread(target=watch, name="tailrace-watch", daemon=True).start()


def check_sinks(graph: Graph) -> None:
    """Raise if records would go into a list of this process, which workers cannot reach."""
    for operator in graph.operators:
        logic = operator.logic
        if isinstance(logic, SinkLogic) and isinstance(logic.sink, Collect):
            raise ValueError(
                f"{operator.name!r} is a sink of tailrace.testing.collect(), whose list only"
                " tailrace.testing.run fills; on Spark end the stream in .sink(...) with one of"
                " tailrace.sinks or a function"
            )


def gist(error: BaseException) -> str:
    """What went wrong, out of Spark's many words: the Python error, if there is one."""
    text = str(error)
    found = re.findall(r"^(?:\w+\.)*\w+(?:Error|Exception): .+$", text, re.MULTILINE)
    python = [line for line in found if not line.startswith(("org.", "java.", "py4j."))]
    line = (python or found or text.splitlines() or [repr(error)])[0]
    if "No module named 'tailrace'" in line:
        line += " (on the executors; install it there, or let PYSPARK_PYTHON name a Python with it)"
    return line
