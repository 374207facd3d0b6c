"""Low-latency stream processing in Python, inside the Spark cluster you already have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailrace import sinks, sources
from tailrace._version import __version__
from tailrace.graph.validate import TopologyError
from tailrace.keyed import KeyedStream
from tailrace.plan.plan import Plan
from tailrace.routing.tables import Tables
from tailrace.runtime.core import Limits
from tailrace.runtime.process import Operator
from tailrace.runtime.sink import Sink
from tailrace.runtime.source import Reader, Source, Split
from tailrace.runtime.step import OperatorFailed
from tailrace.runtime.windows import WindowResult, session, sliding, tumbling
from tailrace.spark.ship import ship
from tailrace.stream import Stream
from tailrace.topology import Topology
from tailrace.windowed import WindowedStream

if TYPE_CHECKING:
    from tailrace.spark.changes import Change, ChangeError
    from tailrace.spark.job import Job, JobFailedError
    from tailrace.spark.session import local_spark

__all__ = [
    "Change",
    "ChangeError",
    "Job",
    "JobFailedError",
    "KeyedStream",
    "Limits",
    "Operator",
    "OperatorFailed",
    "Plan",
    "Reader",
    "Sink",
    "Source",
    "Split",
    "Stream",
    "Tables",
    "Topology",
    "TopologyError",
    "WindowResult",
    "WindowedStream",
    "__version__",
    "local_spark",
    "session",
    "ship",
    "sinks",
    "sliding",
    "sources",
    "tumbling",
]

# Not imported above: whoever imports tailrace must not import pyspark yet, see `spark/daemon.py`.
_LATER = {
    "Change": "tailrace.spark.changes",
    "ChangeError": "tailrace.spark.changes",
    "Job": "tailrace.spark.job",
    "JobFailedError": "tailrace.spark.job",
    "local_spark": "tailrace.spark.session",
}


if not TYPE_CHECKING:  # to which any name would seem to be there

    def __getattr__(name: str) -> Any:
        if name not in _LATER:
            raise AttributeError(f"module 'tailrace' has no attribute {name!r}")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(_LATER[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
