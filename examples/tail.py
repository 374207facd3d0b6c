"""Follow a log as it grows and rotates: how many requests per status?

`python examples/tail.py access.log` follows that file on Spark; without an argument it makes a
small log and follows it in virtual time.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import tailrace as tr
from tailrace import sinks, sources
from tailrace.testing import run

LOG = '{address} - - [24/Jul/2026:10:00:00 +0000] "GET {path} HTTP/1.1" {status} 512\n'


def status_of(line: str) -> str:
    return line.split()[-2]


def follow(path: str) -> tr.Topology:
    topology = tr.Topology("statuses")
    (
        topology.source(sources.lines(path, follow=True))
        .key_by(status_of)
        .scan(lambda count, line: (count or 0) + 1)
        .sink(sinks.console(format=lambda pair: f"status {pair[0]}: {pair[1]} requests"))
    )
    return topology


if __name__ == "__main__":
    if len(sys.argv) > 1:
        from pyspark.sql import SparkSession

        follow(sys.argv[1]).start(SparkSession.builder.getOrCreate()).await_termination()
    else:
        with TemporaryDirectory() as directory:
            log = Path(directory) / "access.log"
            with log.open("w") as file:
                for number, status in enumerate([200, 200, 404, 200, 500]):
                    file.write(LOG.format(address="10.0.0.1", path=f"/{number}", status=status))
            run(follow(str(log)), virtual_s=1.0)
