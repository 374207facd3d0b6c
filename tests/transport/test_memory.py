"""Freed memory stays with the process."""

from __future__ import annotations

import json
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import json, resource
from tailrace.transport.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):  # a few are alive at a time, as frames are
        several = [bytes(3_000_000) for _ in range(3)]
        del several
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

without = faults()
kept = keep_freed_memory()
faults()
print(json.dumps([kept, without, faults()]))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to")
def test_large_blocks_that_come_and_go_cost_no_page_faults() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    kept, without, found = json.loads(done.stdout)
    assert kept
    assert found < 100 < without, (found, without)
