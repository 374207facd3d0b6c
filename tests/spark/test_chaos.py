"""Processes of a job on a real Spark are killed at random moments, its driver too."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from chaos_parts.changes import KINDS
from chaos_parts.kills import CLUSTER, DRIVER, EXECUTOR, LOCAL, WORKER, Kill, kills, strike, victim
from chaos_parts.workload import COUNTS, PAID, SUMS, Audit, Order, expected, topology
from tailrace.testing import run

CHAOS = Path(__file__).parents[2] / "bench" / "chaos.py"


def test_after_twenty_kills_and_many_changes_everything_is_there_exactly_once(
    tmp_path: Path,
) -> None:
    command = [
        sys.executable,
        str(CHAOS),
        "--kills",
        "20",
        "--changes",
        "--local",
        "--keep",
        str(tmp_path / "k"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["kills"] == sum(found["by_kind"].values()) == 20
    assert {*found["by_kind"]} == {*LOCAL}
    assert found["lost"] == found["duplicated"] == found["left_behind"] == 0
    assert found["results"] > 0
    assert found["changes"] == sum(found["changes_by_kind"].values()) > 0
    assert {*found["changes_by_kind"]} <= {*KINDS}
    print(f"\n{found}")


def test_what_must_come_out_is_what_comes_out_undisturbed(tmp_path: Path) -> None:
    order = Order(str(tmp_path), 3_000, 1_000_000)
    run(topology(order), workers=2)
    assert Audit.of(order) == Audit(sum(map(Counter.total, expected(3_000).values())), 0, 0, ())


@pytest.mark.parametrize("sink", [SUMS, COUNTS])
def test_the_audit_finds_what_is_lost_and_what_is_twice(tmp_path: Path, sink: str) -> None:
    order = Order(str(tmp_path), 3_000, 1_000_000)
    run(topology(order), workers=2)
    path = next((tmp_path / sink).glob("part-*"))
    _, second, *rest = path.read_text().splitlines()
    path.write_text("\n".join([second, second, *rest]))
    audit = Audit.of(order)
    assert (audit.lost, audit.duplicated) == (1, 1)
    assert len(audit.samples) == 2
    next((tmp_path / PAID).glob("part-*")).unlink()
    assert Audit.of(order).lost > 100


def test_kills_follow_from_the_seed_and_have_every_kind() -> None:
    assert kills(50, 3, CLUSTER) == kills(50, 3, CLUSTER) != kills(50, 4, CLUSTER)
    assert {kill.kind for kill in kills(4, 3, CLUSTER)} == {*CLUSTER}
    assert len(kills(2, 3, CLUSTER)) == 2
    often = Counter(kill.kind for kill in kills(2_000, 3, LOCAL))
    assert often[WORKER] > often[DRIVER] > 0
    assert EXECUTOR not in often


def test_a_victim_is_of_its_kind_or_there_is_none() -> None:
    workers = [(11, 1), (12, 2)]
    assert victim(Kill(0, WORKER, 0.99), workers, 5) == 12
    assert victim(Kill(0, "supervisor", 0.0), workers, 5) == 1
    assert victim(Kill(0, DRIVER, 0.0), [], 5) == 5
    assert victim(Kill(0, WORKER, 0.0), [], 5) is None


def test_only_processes_of_a_session_are_killed() -> None:
    sleep = "import time; time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", sleep], start_new_session=True) as process:
        assert not strike(process.pid, process.pid + 1)
        assert process.poll() is None
        assert strike(process.pid, process.pid)
    assert not strike(process.pid, process.pid)
