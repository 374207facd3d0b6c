"""`tailrace state`: what a checkpoint folder holds, for people and for other programs."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from tailrace.checkpoint.errors import CheckpointError
from tailrace.checkpoint.folder import folder_at
from tailrace.checkpoint.manifest import Manifest, parse_epoch_name
from tailrace.checkpoint.sections import chains
from tailrace.checkpoint.showing import (
    Row,
    as_json,
    as_text,
    chosen,
    count_keys,
    matching,
    of_operator,
    operators,
    rows,
)
from tailrace.checkpoint.store import Store

_MOST_CHARACTERS = 200
_ENDINGS = ".ndjson, .jsonl or .parquet"


def add_parser(commands: Any) -> None:
    """Tell the command line."""
    state = commands.add_parser("state", help="look into a checkpoint folder")
    actions = state.add_subparsers(dest="action", required=True)
    ls = actions.add_parser("ls", help="its epochs, and which of them are damaged; reads all files")
    show = actions.add_parser("show", help="operators, keys and values of an epoch")
    export = actions.add_parser("export", help="all keys and values of an epoch, into a file")
    for action in (ls, show, export):
        action.add_argument("folder", help="path or URL of the checkpoint folder")
    export.add_argument("file", help=f"to write: {_ENDINGS}; - for NDJSON on the standard output")
    for action in (show, export):
        action.add_argument("--operator", help="of this one only")
        action.add_argument("--epoch", type=int, help="default: the newest that is whole")
    show.add_argument("--key", help="only this key, as show prints it")
    show.add_argument("--limit", type=int, default=20, help="keys per operator; default: 20")


def state(options: argparse.Namespace) -> int:
    """Run the command."""
    actions: dict[str, Callable[[Store, argparse.Namespace], int]] = {
        "ls": _ls,
        "show": _show,
        "export": _export,
    }
    return actions[options.action](Store(folder_at(options.folder)), options)


def _ls(store: Store, _: argparse.Namespace) -> int:
    good: dict[int, str] = {}
    bad: dict[int, str] = {}
    newest: Manifest | None = None
    for name, manifest, cause in store.epochs(verify=True):
        place = parse_epoch_name(name)
        assert place is not None
        epoch = place[1]
        if cause or manifest is None:
            bad.setdefault(epoch, f"{epoch:>8}  passed over: {cause}")
        elif epoch not in good:  # else it is there of a newer generation, which counts
            good[epoch] = _epoch_line(store, manifest)
            newest = newest or manifest
    if not good and not bad:
        raise CheckpointError(f"there is no checkpoint in {store.folder.url!r}")
    if newest is not None:
        print(f"{newest.name!r}, job {newest.job}, generation {newest.generation}")
    print(f"{'epoch':>8}  {'written':<19}{'size':>11}{'added':>11}  keys")
    for epoch in sorted(bad | good):
        print(good.get(epoch) or bad[epoch])
    return 0 if newest is not None else 1


def _epoch_line(store: Store, manifest: Manifest) -> str:
    own = f"data/{manifest.epoch:08}-"
    size = sum(section.length for section in manifest.sections)
    added = sum(one.length for one in manifest.sections if one.file.startswith(own))
    counts = ", ".join(
        f"{operator} {count:,}"
        for operator in operators(manifest)
        if (count := count_keys(store.folder, manifest.of(operator)))
    )
    return (
        f"{manifest.epoch:>8}  {_time(manifest.created_s)}{_bytes(size):>11}{_bytes(added):>11}"
        f"  {counts or 'none'}{'; finished' if manifest.finished else ''}"
    )


def _show(store: Store, options: argparse.Namespace) -> int:
    if options.limit < 0:
        raise ValueError(f"--limit is {options.limit}; it must be at least 0")
    manifest = _chosen(store, options.epoch)
    of_operator(manifest, options.operator)
    names = operators(manifest) if options.operator is None else [options.operator]
    if options.key is not None:
        wanted = matching(options.key)
        found = [
            row
            for name in names
            for row in rows(store.folder, manifest.of(name))
            if row.kind == "keyed" and wanted(row.key)
        ]
        if not found:
            raise CheckpointError(
                f"epoch {manifest.epoch} has no key {options.key!r} in {', '.join(names)}"
            )
        for row in found:
            print(
                f"{row.operator} (instance {row.index}): {as_text(row.key)} = {as_text(row.value)}"
            )
        return 0
    print(
        f"{manifest.name!r}, job {manifest.job}: epoch {manifest.epoch},"
        f" {_time(manifest.created_s)}, generation {manifest.generation}, attempt"
        f" {manifest.attempt}{', finished' if manifest.finished else ''}"
    )
    for name in names:
        _show_operator(store, manifest, name, options.limit)
    return 0


def _show_operator(store: Store, manifest: Manifest, name: str, limit: int) -> None:
    sections = manifest.of(name)
    count = count_keys(store.folder, sections)
    about = [f"{count:,} keys" if count != 1 else "1 key"]
    note = manifest.operators.get(name)
    if note is not None:
        about[:0] = [note.kind, f"parallelism {note.parallelism}"]
        if note.state_version:
            about.append(f"state_version {note.state_version}")
        if note.finished:
            about.append("finished")
    print(f"\n{name}: {', '.join(about)}")
    left = limit
    for chain in chains(sections).values():
        keyed = 0
        for row in rows(store.folder, chain):
            if row.kind == "shared":
                print(f"  shared by instance {row.index}: {_short(as_text(row.value))}")
            elif keyed < left:
                keyed += 1
                print(f"  {_short(as_text(row.key))} = {_short(as_text(row.value))}")
            else:
                break
        left -= keyed
    if count > limit:
        print(f"  and {count - limit:,} more; --limit shows more of them, export all")


def _export(store: Store, options: argparse.Namespace) -> int:
    path = Path(options.file)
    ending = ".ndjson" if options.file == "-" else path.suffix
    if ending not in (".ndjson", ".jsonl", ".parquet"):
        raise ValueError(f"{options.file!r} ends in {ending!r}; expected {_ENDINGS}")
    if options.file != "-" and path.exists():
        raise FileExistsError(f"{options.file!r} is there already; export to another file")
    manifest = _chosen(store, options.epoch)
    found = rows(store.folder, of_operator(manifest, options.operator))
    if options.file == "-":
        for line in _lines(found, manifest.epoch):
            sys.stdout.write(line)
        return 0
    hidden = path.with_name(f".{path.name}.tmp")
    try:
        if ending == ".parquet":
            _write_parquet(hidden, found, manifest.epoch)
        else:
            with hidden.open("w") as file:
                file.writelines(_lines(found, manifest.epoch))
        hidden.rename(path)
    finally:
        hidden.unlink(missing_ok=True)
    print(f"epoch {manifest.epoch} is in {options.file}", file=sys.stderr)
    return 0


def _lines(found: Iterable[Row], epoch: int) -> Iterator[str]:
    for row in found:
        line: dict[str, Any] = {"operator": row.operator, "index": row.index, "kind": row.kind}
        if row.kind == "keyed":
            line["key"] = as_json(row.key)
        line |= {"value": as_json(row.value), "epoch": epoch}
        yield json.dumps(line, ensure_ascii=False) + "\n"


def _write_parquet(path: Path, found: Iterable[Row], epoch: int) -> None:
    from pyarrow import parquet

    from tailrace.checkpoint.table import SCHEMA, batches

    with parquet.ParquetWriter(path, SCHEMA) as writer:
        for batch in batches(found, epoch):
            writer.write_batch(batch)


def _chosen(store: Store, epoch: int | None) -> Manifest:
    manifest = chosen(store, epoch)
    for over in islice(store.passed_over, 5):
        print(over, file=sys.stderr)
    return manifest


def _short(text: str) -> str:
    """In one line, not too long."""
    line = text.replace("\n", "\\n")
    return line if len(line) <= _MOST_CHARACTERS else f"{line[: _MOST_CHARACTERS - 3]}..."


def _time(wall_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall_s))


def _bytes(size: float) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size:.0f} B"
