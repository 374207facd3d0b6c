"""What makes workers unequal for real: others on their core, and being stopped for a moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence

from tailrace.spark.job import Job

STOP_S = 0.020
_HALF = """
import os, signal, sys, time
while True:
    os.kill(int(sys.argv[1]), signal.SIGSTOP)
    time.sleep(0.005)
    os.kill(int(sys.argv[1]), signal.SIGCONT)
    time.sleep(0.005)
"""
_COMPRESS = "import os, zlib\nwhile True: zlib.compress(os.urandom(1 << 20), 9)"


def bind(job: Job, beside: Collection[int]) -> None:
    """Workers of these ranks to the first core, the others to the second, if there is one."""
    cores = sorted(os.sched_getaffinity(0))
    for worker in job.workers:
        core = cores[0] if worker["rank"] in beside else cores[min(1, len(cores) - 1)]
        os.sched_setaffinity(worker["pid"], {core})


def compressing() -> Callable[[], None]:
    """A program that wants all of the first core; what ends it."""
    core = min(os.sched_getaffinity(0))
    process = subprocess.Popen([sys.executable, "-c", _COMPRESS])
    os.sched_setaffinity(process.pid, {core})

    def end() -> None:
        process.kill()
        process.wait()

    return end


def halved(job: Job, rank: int) -> Callable[[], None]:
    """A worker gets half of its time, 5 ms of every 10, as by a CPU quota; what ends that."""
    pid = job.workers[rank]["pid"]
    process = subprocess.Popen([sys.executable, "-c", _HALF, str(pid)])

    def end() -> None:
        process.kill()
        process.wait()
        os.kill(pid, signal.SIGCONT)

    return end


def stopping(job: Job, ranks: Sequence[int], chance: random.Random) -> Callable[[float], None]:
    """Something that takes so long, and stops one of the workers for a moment meanwhile."""

    def during(seconds: float) -> None:
        pid = job.workers[chance.choice(ranks)]["pid"]
        early_s = chance.uniform(0.1, 0.6) * (seconds - STOP_S)
        time.sleep(early_s)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(STOP_S)
        os.kill(pid, signal.SIGCONT)
        time.sleep(max(seconds - early_s - STOP_S, 0.0))

    return during
