"""Partitions a key graph in a process of its own: the driver has other things to do meanwhile.

The graph goes there as arrays; keys stay here. `python -m tailrace.control.partitioning` is the
other end.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

from tailrace.routing.keygraph import KeyGraph
from tailrace.routing.partition import Partition, partition

MOST_S = 120.0
_NICENESS = 10


class PartitioningFailedError(RuntimeError):
    """The process that was to partition a key graph has not done so; the message says why."""


def partition_aside(graph: KeyGraph, most_s: float = MOST_S) -> Partition:
    """As `partition`, with the work done elsewhere. The process is gone when this returns."""
    above = str(Path(__file__).resolve().parents[2])  # where the package lies
    path = os.pathsep.join(filter(None, (above, os.environ.get("PYTHONPATH"))))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tailrace.control.partitioning"],
            input=pickle.dumps(graph, 5),
            capture_output=True,
            timeout=most_s,
            env={**os.environ, "PYTHONPATH": path},
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise PartitioningFailedError(
            f"a graph of {graph.size} keys was not partitioned within {most_s} s"
        ) from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()[-2000:]
        raise PartitioningFailedError(
            f"partitioning a graph of {graph.size} keys ended with code {done.returncode}: {said}"
        )
    found: Partition = pickle.loads(done.stdout)
    return found


def main() -> None:
    """Read a graph, write its partition. Nothing else may be written to the standard output."""
    os.nice(_NICENESS)
    graph = pickle.load(sys.stdin.buffer)
    sys.stdout.buffer.write(pickle.dumps(partition(graph), 5))


if __name__ == "__main__":
    main()
