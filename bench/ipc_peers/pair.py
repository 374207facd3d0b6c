"""Starts the two peers of a transport, talks to them, and turns their answers into samples."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.process import Peer, PeerError, hear

HERE = Path(__file__).parent
START_TIMEOUT_S = 20.0
CALIBRATION_MESSAGES = 30_000
MOST_MESSAGES = 5_000_000


@dataclass(frozen=True)
class Latency:
    """One measurement at a fixed rate. Latencies in the order of sending, warm-up left out."""

    from_due_ns: Sequence[int]
    from_send_ns: Sequence[int]
    achieved_per_s: float


@dataclass(frozen=True)
class Rate:
    """One measurement at full speed."""

    messages: int
    per_s: float
    send_cpu_us: float
    receive_cpu_us: float


class Pair:
    """A sender and a receiver of one transport, alive for the whole run."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._folder = folder
        self.receiver = Peer([*command, "receive"], folder)
        self.sender = Peer([*command, "send"], folder)

    def started(self) -> None:
        """Wait until both are up."""
        hear(self.receiver, self.sender, timeout_s=START_TIMEOUT_S)

    def _connect(self, mode: str, ring_bytes: int) -> None:
        address = self.receiver.ask("open", mode, ring_bytes, self._folder)["address"]
        self.sender.ask("connect", mode, address)

    def _close(self) -> None:
        self.sender.ask("close")
        self.receiver.ask("close")

    def latency(
        self, mode: str, size: int, rate: float, duration_s: float, ring_bytes: int
    ) -> Latency:
        """Send at a fixed rate for that long; up to twice as long if the transport is too slow."""
        measured = round(rate * duration_s)
        warm = max(5, min(200, measured // 10))
        self._connect(mode, ring_bytes)
        self.receiver.ask("latency", size, warm + measured)
        self.sender.tell("latency", size, warm + measured, rate, 2 * duration_s)
        sent, got = hear(self.sender, self.receiver)
        self._close()
        delivered = len(got["from_due_ns"])
        if delivered != sent["sent"] or delivered <= warm:
            raise PeerError(f"sent {sent['sent']} messages, {delivered} arrived")
        return Latency(
            got["from_due_ns"][warm:],
            got["from_send_ns"][warm:],
            1e9 * delivered / (got["end_ns"] - sent["start_ns"]),
        )

    def rate(self, mode: str, size: int, duration_s: float, ring_bytes: int) -> Rate:
        """Send at full speed for about that long, after a run that warms up and sets the count."""
        self._connect(mode, ring_bytes)
        seen = self._burst(size, CALIBRATION_MESSAGES)
        count = min(MOST_MESSAGES, max(CALIBRATION_MESSAGES, round(seen.per_s * duration_s)))
        result = self._burst(size, count)
        self._close()
        return result

    def _burst(self, size: int, count: int) -> Rate:
        self.receiver.ask("rate", size, count)
        self.sender.tell("rate", size, count)
        sent, got = hear(self.sender, self.receiver)
        return Rate(
            count,
            1e9 * count / (got["end_ns"] - sent["start_ns"]),
            sent["cpu_ns"] / count / 1e3,
            got["cpu_ns"] / count / 1e3,
        )

    def warm_up(self, mode: str, messages: int, ring_bytes: int) -> None:
        """Run small and large messages through both ends, for compilers and caches to settle."""
        self._connect(mode, ring_bytes)
        self._burst(100, messages)
        self._burst(40 << 10, messages // 50)
        self._close()
        self.latency(mode, 40 << 10, 10_000, messages / 1e6, ring_bytes)

    def idle_cpu_percent(self, mode: str, seconds: float, ring_bytes: int) -> float:
        """Return what a receiver uses that has had traffic and now waits, in percent of a core."""
        self._connect(mode, ring_bytes)
        self._burst(100, CALIBRATION_MESSAGES)
        percent: float = self.receiver.ask("idle", seconds)["cpu_percent"]
        self._close()
        return percent

    def end(self) -> None:
        """End both processes."""
        self.sender.end()
        self.receiver.end()


def python_command(peer: str) -> list[str]:
    """Return the command that runs a Python peer."""
    return [sys.executable, "-m", f"ipc_peers.{peer}"]


def netty_command(folder: Path) -> list[str]:
    """Compile the Java peers against the Netty that comes with PySpark; return how to run them."""
    for tool in ("javac", "java"):
        if shutil.which(tool) is None:
            raise PeerError(f"{tool} is not on the PATH; install a JDK, 17 or later")
    try:
        import pyspark
    except ImportError as error:
        raise PeerError("PySpark, which brings the Netty jars, is not installed") from error
    jars = sorted((Path(pyspark.__file__).parent / "jars").glob("netty-*.jar"))
    if not jars:
        raise PeerError("this PySpark comes without Netty jars")
    classes = folder / "classes"
    class_path = os.pathsep.join(map(str, jars))
    sources = map(str, sorted((HERE / "netty").glob("*.java")))
    built = subprocess.run(
        ["javac", "-nowarn", "-d", str(classes), "-cp", class_path, *sources],
        capture_output=True,
        text=True,
        timeout=60,
    )
    if built.returncode:
        raise PeerError(f"javac: {built.stderr.strip().splitlines()[0]}")
    options = ["-Xms256m", "-Xmx512m", "-XX:MaxDirectMemorySize=256m", "-Djava.awt.headless=true"]
    return ["java", *options, "-cp", os.pathsep.join([str(classes), class_path]), "NettyPeer"]
