"""Processes that a benchmark starts: all of them end, and leave nothing behind."""

import sys
from pathlib import Path

import pytest

from harness import process
from harness.process import Peer, hear

LEADER = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE)
child.stdout.readline()
print("{}", flush=True)
sys.stdin.read()
"""
TIDY = """
import pathlib, sys, time
print(flush=True)
sys.stdin.read()
time.sleep(0.3)  # as a JVM takes some time for it
pathlib.Path(sys.argv[1]).unlink()
"""
STUBBORN = """
import time
print(flush=True)
time.sleep(600)
"""


def started(child: str, left: Path, folder: Path) -> Peer:
    left.touch()
    peer = Peer([sys.executable, "-c", LEADER, child, str(left)], folder)
    hear(peer)
    return peer


def test_what_a_peer_has_started_may_tidy_up_before_it_ends(tmp_path: Path) -> None:
    left = tmp_path / "left"
    peer = started(TIDY, left, tmp_path)
    peer.end()
    assert not left.exists()
    assert not peer.running()


def test_what_does_not_end_by_itself_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "TIDY_TIMEOUT_S", 0.1)
    peer = started(STUBBORN, tmp_path / "left", tmp_path)
    assert len(peer.running()) == 2
    peer.end()
    monkeypatch.setattr(process, "TIDY_TIMEOUT_S", 10.0)
    peer.await_end()
    assert not peer.running()
