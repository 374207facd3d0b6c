"""Spark's classes in a file that the JVM maps at its start, instead of loading 10,000 of them.

The file (a class data archive, some 110 MB) is made by `tailrace warm-up`, once for each Java,
pyspark and set of options, and never unasked; `local_spark` uses it where it is there. It appears
whole or not at all, in the user's cache folder. Whatever goes wrong with it costs the quick start
and nothing else: the JVM checks an archive against its own build and class path, and loads classes
as usual when they do not match.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

SWITCH = "TAILRACE_ARCHIVE"
"""The environment variable that turns archives off, without removing them, by being "off"."""
_MOST_BYTES = 256 << 20
_KEPT = 3
"""Archives in the folder; those that were not used for longest go first."""
_FREE_BYTES = 1 << 30
"""What must be free on the disk before one is made."""
PATIENCE_S = 300
"""So long a job or the end of a JVM may take."""


class ArchiveError(RuntimeError):
    """No archive was made; the message says why."""


def folder() -> Path:
    """Where archives are kept: the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "tailrace")


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
    return folder() / f"spark-{hashlib.sha256(facts.encode()).hexdigest()[:16]}.jsa"


def _java_folder() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin")) if home else None


def use(path: Path) -> str | None:
    """The JVM's options to start from an archive; None when there is none that we made."""
    if os.environ.get(SWITCH) == "off":
        return None
    try:
        if path.stat().st_uid != os.getuid():
            return None
        os.utime(path)  # for `_tidy`: it is in use
    except OSError:
        return None
    return f'"-XX:SharedArchiveFile={path}" -Xlog:disable'


def make(path: Path, record: Callable[[Path], None]) -> None:
    """Have `record` write an archive to the path that it is given, if there is none.

    One process at a time makes one.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.with_name("spark.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ArchiveError(f"another process is making an archive in {path.parent}") from None
        if path.exists():
            return
        free = shutil.disk_usage(path.parent).free
        if free < _FREE_BYTES:
            raise ArchiveError(
                f"{free / 1e6:,.0f} MB are free in {path.parent}; {_FREE_BYTES / 1e6:,.0f} are"
                " needed. Free some, or set XDG_CACHE_HOME to a folder with more room"
            )
        part = path.with_suffix(".part")
        try:
            record(part)
            size = part.stat().st_size
            if size > _MOST_BYTES:
                raise ArchiveError(
                    f"the archive has {size:,} bytes; more than {_MOST_BYTES:,} are not kept"
                )
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        _tidy(path.parent)


def remove() -> int:
    """Take all archives away; how many bytes that frees."""
    freed = 0
    for pattern in ("spark-*.jsa", "spark-*.part", "spark.lock"):
        for path in folder().glob(pattern):
            freed += path.stat().st_size
            path.unlink(missing_ok=True)
    return freed


def close_jvm(part: Path) -> None:
    """Have Spark's JVM write its archive, which it does when it ends; the session has stopped."""
    from pyspark import SparkContext

    jvm: subprocess.Popen[bytes] = SparkContext._gateway.proc
    assert jvm.stdin is not None
    jvm.stdin.close()  # by which Spark's JVM knows that it is not needed any more
    code = jvm.wait(PATIENCE_S)
    if code != 0 or not part.exists():
        raise ArchiveError(f"the JVM wrote no archive and ended with exit code {code}")


def _tidy(folder: Path) -> None:
    archives = sorted(folder.glob("spark-*.jsa"), key=lambda path: path.stat().st_mtime)
    for path in [*archives[:-_KEPT], *folder.glob("spark-*.part")]:
        path.unlink(missing_ok=True)
