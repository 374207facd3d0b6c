"""Bring tailrace, with its native part, and the user's modules to executors that lack them."""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

_LEFT_OUT = (".pyc", ".pyo", ".pyx", ".pxd", ".h", ".c", ".pyi")
_shipped: weakref.WeakKeyDictionary[Any, list[str]] = weakref.WeakKeyDictionary()


def ship(spark: Any, modules: Iterable[str | ModuleType] = ()) -> None:
    """Bring this tailrace and more modules to all executors of a session, for jobs from now on.

    Modules and packages are given by name or as they are; a part of a package stands for all of
    it. Whatever runs in the executors' Python is taken from there first, so it need not be
    installed, and is what the driver has. They must have the same minor version of Python, and
    pyarrow and msgspec, or be given them: `ship(spark, ["mymodule", "msgspec"])`.

    Files go by Spark's own file server (`SparkContext.addArchive`), some 3 MB, once for each
    content. A local Spark has all that this process has; there nothing is done. With Spark Connect
    the server's administrator does it: see docs/clusters.md.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise ValueError(
            "a session by Spark Connect cannot ship what has native parts; start the server with"
            " --archives and spark.executorEnv.PYTHONPATH, see docs/clusters.md"
        )
    context = spark.sparkContext
    if context.master == "local" or context.master.startswith("local["):
        return
    folder = Path(tempfile.mkdtemp(prefix="tailrace-ship-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # Spark serves it until then
    name = pack(folder / "archive.zip", modules)
    known = _shipped.setdefault(context, [])
    if name not in known:
        context.addArchive(f"{folder / 'archive.zip'}#{name}")
    else:
        known.remove(name)
    known.insert(0, name)  # the newest counts


def shipped(context: Any) -> list[str]:
    """What was shipped, as folders in an executor's directory: the entries of its PYTHONPATH."""
    return list(_shipped.get(context, ()))


def pack(path: Path | str, modules: Iterable[str | ModuleType] = ()) -> str:
    """Write what `ship` brings into a zip file, for `spark-submit --archives`; returns its name.

    The name stands for the content.
    """
    names = {_top(module) for module in modules} | {"tailrace"}
    files = sorted(
        (inside, file)
        for name in names
        for inside, file in _files(name)
        if file.suffix not in _LEFT_OUT
    )
    digest = hashlib.sha256()
    with ZipFile(path, "w") as archive:
        for inside, file in files:
            content = file.read_bytes()
            digest.update(f"{inside} {len(content)}\n".encode())
            digest.update(content)
            archive.writestr(ZipInfo(inside), content, ZIP_DEFLATED, compresslevel=1)
    return f"tailrace-{digest.hexdigest()[:12]}"


def _top(module: str | ModuleType) -> str:
    name = module if isinstance(module, str) else module.__name__
    return name.partition(".")[0]


def _files(name: str) -> Iterator[tuple[str, Path]]:
    """The files of a module or package, each with its path below a folder of modules."""
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # a module that was run, not imported
        spec = None
    if spec is None or name == "__main__":
        raise ModuleNotFoundError(
            f"{name!r} was to be shipped; it cannot be imported here. Give modules by the name"
            " that they are imported by",
            name=name,
        )
    roots = [Path(root) for root in spec.submodule_search_locations or ()]
    for root in roots:
        for file in root.rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                yield f"{name}/{file.relative_to(root).as_posix()}", file
    if not roots:
        if spec.origin is None or not Path(spec.origin).is_file():
            raise ModuleNotFoundError(
                f"{name!r} was to be shipped; it is part of Python itself", name=name
            )
        yield Path(spec.origin).name, Path(spec.origin)
