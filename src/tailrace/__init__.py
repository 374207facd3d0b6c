"""Low-latency stream processing in Python, inside the Spark cluster you already have."""

from tailrace import sinks, sources
from tailrace.graph.validate import TopologyError
from tailrace.runtime.core import Limits
from tailrace.runtime.operators import Operator
from tailrace.runtime.source import Reader, Sink, Source
from tailrace.runtime.windows import WindowResult, session, sliding, tumbling
from tailrace.stream import KeyedStream, Stream
from tailrace.topology import Topology
from tailrace.windowed import WindowedStream

__version__ = "0.1.0"

__all__ = [
    "KeyedStream",
    "Limits",
    "Operator",
    "Reader",
    "Sink",
    "Source",
    "Stream",
    "Topology",
    "TopologyError",
    "WindowResult",
    "WindowedStream",
    "__version__",
    "session",
    "sinks",
    "sliding",
    "sources",
    "tumbling",
]
