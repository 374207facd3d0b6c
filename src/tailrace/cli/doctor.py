"""`tailrace doctor`: what a job needs of a Spark, checked one by one, with what to do about it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.control.cores import cpu_quota
from tailrace.control.protocol import VERSION

_TASKS = 8
"""Task slots that are looked at, at most."""
_RING_BYTES = 8 << 20
_SKEW_S = 1.0
_PATIENCE_S = 60.0
_INTERVAL = "spark.scheduler.barrier.maxConcurrentTasksCheck.interval"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    said: str
    todo: str = ""
    """What to do, if something should be done."""
    fatal: bool = False
    """Whether no job could run."""

    def __str__(self) -> str:
        state = "bad " if self.fatal else "note" if self.todo else "ok  "
        return f"{state}  {self.name:<18}{self.said}" + (f": {self.todo}" if self.todo else "")


def doctor(find: Callable[[], Any]) -> int:
    """Check everything and print a line for each; 1 if a job could not run. `find` makes Spark."""
    worst = 0
    for check in _checks(find):
        print(check, flush=True)
        worst = max(worst, int(check.fatal))
    print("a job could not run here" if worst else "jobs can run here")
    return worst


def _checks(find: Callable[[], Any]) -> Iterator[Check]:
    from tailrace.spark.cluster import cluster_of
    from tailrace.spark.launch import gist
    from tailrace.spark.ship import ship

    yield Check("this process", f"{VERSION}, {_cores(os.cpu_count() or 1, cpu_quota())}")
    found = java(_java_says())
    yield found
    if found.fatal:
        return
    try:
        spark = find()
        cluster = cluster_of(spark)
        slots = cluster.slots(2)
    except Exception as error:
        yield Check("Spark", gist(error), "see docs/clusters.md", fatal=True)
        return
    yield Check("Spark", f"{spark.version} at {cluster.master()}")
    yield task_slots(slots, cluster.scales)
    if not slots:
        return
    yield from settings(cluster.setting, cluster.is_local)
    try:
        if not type(spark).__module__.startswith("pyspark.sql.connect"):
            ship(spark)
        before_s = time.time()
        told = [json.loads(one) for one in cluster.ask(min(slots, _TASKS), look)]
    except Exception as error:
        yield Check("executors", gist(error), "see docs/clusters.md", fatal=True)
        return
    yield from executors(told, before_s, time.time())
    for node, name in (("memory", "rings and sockets"), ("worker", "sockets alone")):
        yield _job(spark, len(told), node, name)


def _java_says() -> str | None:
    home = os.environ.get("JAVA_HOME")
    program = f"{home}/bin/java" if home else shutil.which("java")
    if program is None:
        return None
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stderr or done.stdout


def java(said: str | None) -> Check:
    """Spark 4 needs Java 17 or later.

    >>> print(java('openjdk version "17.0.15" 2025-04-15'))
    ok    Java              17.0.15
    >>> java('java version "1.8.0_292"').fatal
    True
    """
    install = "install 17 or later, for example: apt-get install openjdk-17-jre-headless"
    version = re.search(r'version "([\d._]+)', said or "")
    if version is None:
        return Check("Java", "none found", install, fatal=True)
    if int(version[1].split(".")[0]) < 17:
        return Check("Java", f"{version[1]} is too old", install, fatal=True)
    return Check("Java", version[1])


def task_slots(slots: int, scales: bool) -> Check:
    """Where there is none, no worker can ever start."""
    if scales:
        return Check("task slots", "executors come as workers need them (dynamic allocation)")
    if slots:
        return Check("task slots", f"{slots}, the most workers that all jobs together can have")
    return Check(
        "task slots",
        "no executor has registered within 10 s",
        "look at the cluster manager for why (memory, cores, a queue that is full)",
        fatal=True,
    )


def settings(setting: Callable[[str], str], is_local: bool) -> Iterator[Check]:
    """Those of Spark's that matter to jobs on a cluster."""
    if is_local:
        return
    scales = setting("spark.dynamicAllocation.enabled").lower() == "true"
    if scales:
        yield Check(
            "settings",
            "dynamic allocation is on",
            "transform() needs a session with spark.dynamicAllocation.enabled=false",
        )
    elif not setting(_INTERVAL):
        yield Check(
            "settings",
            "jobs that come before their executors wait 15 s",
            f"set {_INTERVAL}=1s",
        )
    timeout = setting("spark.network.timeout") or "120s"
    if seconds(timeout) > 30:
        yield Check(
            "settings",
            f"Spark counts lost hosts for {timeout} (spark.network.timeout)",
            "for sooner, set spark.network.timeout=10s and spark.executor.heartbeatInterval=2s",
        )


def seconds(text: str) -> float:
    """A time as Spark's settings have it.

    >>> seconds("2min"), seconds("500ms"), seconds("10")
    (120.0, 0.5, 10.0)
    """
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    return float(found[1]) * units.get(found[2], 1.0) if found else 0.0


def look() -> str:
    """In a task: what there is."""
    import importlib.util
    import socket
    from pathlib import Path

    from tailrace.transport.ring import Ring

    ring = ""
    try:
        Ring.create(_RING_BYTES).close()
    except Exception as error:
        ring = repr(error)
    installed = [Path(one) for one in sys.path if not Path(one).name.startswith("tailrace-")]
    return json.dumps(
        {
            "host": socket.gethostname(),
            "version": VERSION,
            "installed": any((one / "tailrace" / "__init__.py").is_file() for one in installed),
            "missing": [n for n in ("pyarrow", "msgspec") if importlib.util.find_spec(n) is None],
            "ring": ring,
            "cores": len(os.sched_getaffinity(0)),
            "quota": cpu_quota(),
            "at_s": time.time(),
        }
    )


def executors(
    told: Sequence[Mapping[str, Any]], before_s: float, after_s: float
) -> Iterator[Check]:
    """What the tasks have found, all of which ran between two times of this process's clock."""
    hosts = Counter(one["host"] for one in told)
    yield Check("executors", f"{told[0]['version']} on {', '.join(sorted(hosts))}")
    if not all(one["installed"] for one in told):
        yield Check(
            "shipping",
            "tailrace is not installed there, and was brought",
            "call tailrace.ship(spark) in your programs; `tailrace run --master` does",
        )
    missing = sorted({name for one in told for name in one["missing"]})
    if missing:
        yield Check(
            "packages",
            f"executors lack {', '.join(missing)}",
            f"install, or ship(spark, {missing})",
            fatal=True,
        )
    rings = {one["host"]: one["ring"] for one in told if one["ring"]}
    if rings:
        yield Check(
            "rings",
            "; ".join(f"{host}: {error}" for host, error in sorted(rings.items())),
            "shared memory is not allowed there, or too little: look at the container's limits",
            fatal=True,
        )
    else:
        yield Check("rings", f"of {_RING_BYTES >> 20} MiB can be made")
    skews = {one["host"]: _outside(one["at_s"], before_s, after_s) for one in told}
    worst = max(skews, key=lambda host: abs(skews[host]))
    if abs(skews[worst]) > _SKEW_S:
        yield Check(
            "clocks",
            f"{worst} is {skews[worst]:+.1f} s from here",
            "run a time daemon: windows by the clock and logs would differ",
        )
    else:
        yield Check("clocks", f"within {max(_SKEW_S, after_s - before_s):.0f} s of this one")
    for host, tasks in sorted(hosts.items()):
        one = next(one for one in told if one["host"] == host)
        usable = min(one["cores"], one["quota"] or one["cores"])
        yield Check(
            "cores",
            f"{host}: {tasks} workers looked, {_cores(one['cores'], one['quota'])}",
            "workers will wait for each other: give executors fewer cores or containers more"
            if usable < tasks
            else "",
        )


def _outside(at_s: float, before_s: float, after_s: float) -> float:
    """How far a time is from a span, which it should be in."""
    return min(at_s - before_s, 0.0) or max(at_s - after_s, 0.0)


def _cores(cores: int, quota: float | None) -> str:
    return f"{cores} cores" + ("" if quota is None else f" under a quota of {quota:g}")


def _job(spark: Any, workers: int, node: str, name: str) -> Check:
    """A real job, in which every worker sends to every other one."""
    from tailrace.topology import Topology

    topology = Topology(f"doctor: {name}")
    numbers = topology.source(range(1000), parallelism=workers).shuffle()
    numbers.map(abs, parallelism=workers).sink(lambda _: None)
    begun_s = time.monotonic()
    try:
        job = topology.start(spark, workers=workers, node=node)
        ended = job.await_termination(_PATIENCE_S)
        if not ended:
            job.stop(drain=False)
            return Check(name, f"a job has not ended after {_PATIENCE_S:g} s", _PORTS, fatal=True)
    except Exception as error:
        return Check(name, str(error).splitlines()[0], _PORTS, fatal=True)
    ways = Counter(way for worker in job.workers for way in worker["ways"].values())
    joined = ", ".join(f"{count} by {way}" for way, count in sorted(ways.items())) or "one worker"
    took_s = time.monotonic() - begun_s
    return Check(name, f"a job of {workers} workers ran in {took_s:.1f} s ({joined})")


_PORTS = (
    "executors must reach the driver and each other; for firewalls give start() a range of ports="
    " or set spark.tailrace.ports"
)
