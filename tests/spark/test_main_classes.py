"""States of classes that a script defines itself: kept, restored, shown."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

from tailrace.checkpoint.folder import folder_at
from tailrace.checkpoint.showing import chosen, rows
from tailrace.checkpoint.store import Store

PROGRAM = Path(__file__).with_name("main_program.py")


def run(*arguments: Path) -> None:
    program = [sys.executable, str(PROGRAM), *map(str, arguments)]
    done = subprocess.run(program, check=False, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]


def counts(folder: Path) -> Counter[int]:
    return Counter(int(n) for path in folder.glob("part-*") for n in path.read_text().split())


def test_states_of_a_scripts_own_class_survive_kills_and_savepoints(tmp_path: Path) -> None:
    saved = [tmp_path / "saved-0", tmp_path / "saved-1"]
    run(tmp_path / "kept-0", tmp_path / "out-0", saved[0])
    first = counts(tmp_path / "out-0")
    run(tmp_path / "kept-1", tmp_path / "out-1", saved[1], saved[0])
    second = counts(tmp_path / "out-1")
    total = first.total()
    # Five keys take turns: each count comes five times, the last few perhaps less often.
    assert first + second == Counter(n // 5 + 1 for n in range(total + second.total()))
    folder = folder_at(saved[1])
    found = [one for one in rows(folder, chosen(Store(folder)).of("totals")) if one.key is not None]
    assert len(found) == 5
    assert all(repr(one.value).startswith("__main__.Total(count=") for one in found)
