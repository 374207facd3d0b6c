"""The process that Spark forks the workers of an executor from, with everything imported already.

Spark's own daemon imports pyspark out of a zip, which keeps no bytecode, and once more in every
worker. This one prefers an installed pyspark of the same version and imports what a worker needs
before it forks. `local_spark` uses it; for a session of your own set
`spark.python.daemon.module` to `tailrace.spark.daemon`, where executors have tailrace installed.

Only a process with one thread may be forked. So pyarrow, which starts one, is left to the workers;
and should something have started a thread after all, Spark's own daemon takes over.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile, ZipFile

_PRELOADED = (
    "pyspark.daemon",
    "pyspark.worker",
    "tailrace.control.worker",
    "tailrace.spark.launch",
    "tailrace.spark.supervisor",
)
_VERSION = "pyspark/version.py"


def installed_first(path: Sequence[str]) -> list[str]:
    """The module search path with Spark's zips last, if their pyspark is also installed outside.

    Another version outside is none of ours: then everything stays as it is.
    """
    zips = [entry for entry in path if entry.endswith(".zip") and "py" in Path(entry).name]
    others = [entry for entry in path if entry not in zips]
    installed = next(
        (Path(entry, _VERSION) for entry in others if Path(entry, _VERSION).is_file()), None
    )
    for archive in zips:
        if Path(archive).name == "pyspark.zip" and installed is not None:
            try:
                with ZipFile(archive) as opened:
                    same = opened.read(_VERSION) == installed.read_bytes()
            except (OSError, KeyError, BadZipFile):
                same = False
            return [*others, *zips] if same else list(path)
    return list(path)


def preload() -> bool:
    """Import what workers need; whether this process may still be forked."""
    try:
        for module in _PRELOADED:
            importlib.import_module(module)
    except Exception:
        return False  # the worker that needs it will say what is wrong
    return len(list(Path("/proc/self/task").iterdir())) == 1


def main() -> None:
    """Serve Spark until it closes our input."""
    sys.path[:] = installed_first(sys.path)
    if not preload():
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])
    gc.collect()
    gc.freeze()  # what is here now lives as long as the workers: their collections need not look
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
