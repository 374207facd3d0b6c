"""`tailrace warm-up`: an archive of the JVM's classes, from which local Sparks start sooner."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tailrace.spark import archive
from tailrace.topology import Topology


def warm_up() -> int:
    """Make the archive that `local_spark` uses; says where it is, how large, and what it took."""
    from tailrace.spark.session import local_archive

    path = local_archive()
    if path is None:
        raise RuntimeError(
            "no Java was found, or not what belongs to it; Spark needs Java 17 or later, for"
            " example: apt-get install openjdk-17-jre-headless"
        )
    if path.exists():
        print(f"there is an archive already: {_told(path.stat().st_size)} in {path.parent}")
        return 0
    print("starting Spark once, to keep the JVM's classes ...", file=sys.stderr)
    begun_s = time.monotonic()
    archive.make(path, record)
    took_s = time.monotonic() - begun_s
    print(
        f"kept {_told(path.stat().st_size)} in {path.parent} after {took_s:.0f} s; local Sparks"
        " start from it now. `tailrace warm-up --remove` takes it away"
    )
    return 0


def record(part: Path) -> None:
    """Run a small job on a Spark that writes its classes to an archive.

    It starts in this process, which must have none.
    """
    from tailrace.spark.session import new_session

    spark = new_session(2, f'"-XX:ArchiveClassesAtExit={part}" -Xlog:disable')
    topology = Topology("warm-up")
    topology.source(range(10)).shuffle().map(abs, parallelism=2).sink(lambda _: None)
    topology.start(spark).await_termination(archive.PATIENCE_S)
    spark.stop()
    archive.close_jvm(part)


def remove() -> int:
    """Take all archives away, and say what that freed."""
    freed = archive.remove()
    print(f"freed {_told(freed)} in {archive.folder()}" if freed else "there is no archive")
    return 0


def _told(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
