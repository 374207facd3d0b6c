"""Whatever happens, the newest good epoch is found: random histories, drivers that are killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tailrace.checkpoint.manifest import Manifest, data_name
from tailrace.checkpoint.sections import EpochFile, Kind, encode_block
from tailrace.checkpoint.store import Store
from tests.checkpoint.memory import Memory
from tests.checkpoint.writing import Lease, flip, state, write_epoch

WRITER = """
import sys
from tailrace.checkpoint.folder import folder_at
from tailrace.checkpoint.lease import take_lease
from tailrace.checkpoint.manifest import Manifest, chained, data_name
from tailrace.checkpoint.reading import merge
from tailrace.checkpoint.restoring import chain_of
from tailrace.checkpoint.sections import EpochFile, encode_block
from tailrace.checkpoint.store import Store
from dataclasses import replace

folder = folder_at(sys.argv[1])
lease = take_lease(folder, "job")
store = Store(folder, lease)
last = store.resume(Manifest.beginning("job", "name", 0.0), verify=True)
assert not store.passed_over, store.passed_over
state = merge(folder, last.sections)
assert state == {key: last.epoch for key in range(min(last.epoch, 1) * 500)}, last.epoch
print(last.epoch, flush=True)
for epoch in range(last.epoch + 1, 1_000_000):
    file = EpochFile(data_name(epoch, lease.generation, 0, 0))
    pairs = [(key, epoch) for key in range(500)]
    blocks = [encode_block(pairs[at : at + 50]) for at in range(0, 500, 50)]
    full = chain_of(last.sections).full_is_due
    file.add("count", 0, "full" if full else "delta", blocks, 500)
    sections = chained(last, file.write(folder))
    last = replace(last, epoch=epoch, sections=sections)
    store.commit(last)
    store.sweep(keep=2, current=(lease.generation, 0))
    print(epoch, flush=True)
"""


def test_a_driver_that_is_killed_at_any_moment_leaves_its_last_epoch(tmp_path: Path) -> None:
    """Each life checks all that the one before left; it goes on from what that has said."""
    where, said = str(tmp_path / "state"), 0
    for life in range(8):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, where], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            resumed = process.stdout.readline()
            assert resumed, f"life {life} could not go on"
            assert int(resumed) >= said
            for _ in range(5 + life):
                said = int(process.stdout.readline())
            process.kill()
            for line in process.stdout.read().split():
                said = int(line)
    assert said >= 40
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) < 50, "what was left behind is swept away"


events = st.sampled_from(["full", "delta", "delta", "sweep", "lost epoch", "damage", "take over"])


@given(st.lists(st.tuples(events, st.integers(0, 5), st.integers(0, 9)), max_size=25))
def test_whatever_happens_the_newest_good_epoch_is_found(
    history: list[tuple[str, int, int]],
) -> None:
    folder = Memory()
    generation, epoch = 1, 0
    last: Manifest | None = None
    good: dict[str, dict[int, int]] = {}
    current: dict[int, int] = {}
    for event, key, value in history:
        store = Store(folder, Lease(generation))
        if event in ("full", "delta", "lost epoch"):
            epoch += 1
            current = {**current, key: value}
            kind: Kind = "full" if event == "full" or last is None else "delta"
            pairs = current if kind == "full" else {key: value}
            if event == "lost epoch":
                file = EpochFile(data_name(epoch, generation, 0, 0))
                file.add("count", 0, kind, [encode_block(list(pairs.items()))], len(pairs))
                file.write(folder)  # and no manifest: all goes back to the epoch before
                epoch -= 1
                current = dict(good[last.file]) if last else {}
            else:
                last = write_epoch(store, epoch, pairs, kind, last, generation)
                good[last.file] = current
        elif event == "sweep":
            store.sweep(keep=2, current=(generation, 0))
        elif event == "damage" and last is not None and len(folder.names("epochs")) > 1:
            flip(folder, last.file, 30)
            last = Store(folder).latest()
            current = dict(good[last.file]) if last else {}
            generation += 1  # only whoever comes next finds out
            if last is not None:
                last = Store(folder, Lease(generation)).resume(last)
                good[last.file], epoch = current, last.epoch
        elif event == "take over" and last is not None:
            generation += 1
            last = Store(folder, Lease(generation)).resume(last)
            good[last.file] = current
        found = Store(folder).latest(verify=True)
        assert found == last
        if found is not None:
            assert state(store, found) == current
