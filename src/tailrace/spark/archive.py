"""Spark's classes in a file that the JVM maps at its start, instead of loading 10,000 of them.

The file (a class data archive) is made once for each Java, pyspark and set of options: by a process
of the lowest priority that the first program leaves behind when it ends, so that nobody waits for
it. It appears whole or not at all, in the user's cache folder. Whatever goes wrong with it costs
the quick start and nothing else: the JVM checks an archive against its own build and class path,
and loads classes as usual when they do not match.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

_MOST_BYTES = 256 << 20
_KEPT = 3
"""Archives in the folder; those that were not used for longest go first."""
_FREE_BYTES = 1 << 30
"""What must be free on the disk before one is made."""
_PATIENCE_S = 300
_TRIES = 3
"""So often an archive is begun: the first time, the machine may have been switched off."""


def archive_path(jvm_options: str) -> Path | None:
    """Where the archive for this Java, this pyspark and these options is or would be."""
    import pyspark

    java = shutil.which("java", path=_java_folder())
    if java is None:
        return None
    spark = Path(pyspark.__file__).parent
    try:
        build = Path(java).resolve().parent.parent.joinpath("release").read_bytes()
        jars_ns = spark.joinpath("jars").stat().st_mtime_ns
    except OSError:
        return None
    facts = repr((build, pyspark.__version__, str(spark), jars_ns, jvm_options))
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "tailrace")
    return folder / f"spark-{hashlib.sha256(facts.encode()).hexdigest()[:16]}.jsa"


def _java_folder() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin")) if home else None


def use(path: Path) -> str | None:
    """The JVM's options to start from an archive; None when there is none that we made."""
    try:
        if path.stat().st_uid != os.getuid():
            return None
        os.utime(path)  # for `_tidy`: it is in use
    except OSError:
        return None
    return f'"-XX:SharedArchiveFile={path}" -Xlog:disable'


def make_later(path: Path) -> None:
    """Start the process that makes an archive, and do not wait for it.

    Does nothing if it has failed too often; the file `.failed` beside it tells, and may be removed.
    """
    if _tries(path) >= _TRIES:
        return
    with suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def make(path: Path) -> bool:
    """Run a small job on a Spark that writes its classes to an archive; False: not made.

    Only one process at a time makes one.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.with_name("spark.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if path.exists() or shutil.disk_usage(path.parent).free < _FREE_BYTES:
            return False
        part = path.with_suffix(".part")
        # Before the try, which may end with this process.
        path.with_suffix(".failed").write_text(f"{_tries(path) + 1}\n")
        try:
            if not _record(part) or part.stat().st_size > _MOST_BYTES:
                return False
            part.replace(path)
            path.with_suffix(".failed").unlink()
        finally:
            part.unlink(missing_ok=True)
        _tidy(path.parent)
        return True


def _tries(path: Path) -> int:
    """How often making this archive has begun in vain."""
    try:
        return int(path.with_suffix(".failed").read_text())
    except (OSError, ValueError):
        return 0


def _record(part: Path) -> bool:
    from pyspark import SparkContext

    from tailrace.spark.session import new_session
    from tailrace.topology import Topology

    spark = new_session(2, f'"-XX:ArchiveClassesAtExit={part}" -Xlog:disable')
    topology = Topology("archive")
    topology.source(range(10)).shuffle().map(abs, parallelism=2).sink(lambda _: None)
    topology.start(spark).await_termination(_PATIENCE_S)
    spark.stop()
    jvm: subprocess.Popen[bytes] = SparkContext._gateway.proc
    assert jvm.stdin is not None
    jvm.stdin.close()  # by which Spark's JVM knows that it is not needed any more
    return jvm.wait(_PATIENCE_S) == 0 and part.exists()


def _tidy(folder: Path) -> None:
    archives = sorted(folder.glob("spark-*.jsa"), key=lambda path: path.stat().st_mtime)
    for path in [*archives[:-_KEPT], *folder.glob("spark-*.part")]:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    signal.alarm(_PATIENCE_S)  # the end of this process is also that of its JVM
    make(Path(sys.argv[1]))
