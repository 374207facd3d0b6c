"""Several hosts on one machine: Linux namespaces, joined by a bridge.

    python bench/hosts_parts/namespaces.py [--hosts N] [-- command ...]

Each host has an address and a loopback of its own, and its own host name and shared memory, as
machines have; with `clock_ahead_s`, its monotonic clock counts from another boot, too. Nothing
outside of the namespaces is reached or changed. As a script it makes a standalone Spark cluster of
them (a host for the master and the driver, and N for workers), runs the command on the driver's
host with SPARK_MASTER_URL and SPARK_LOCAL_IP set, and removes everything; without a command it
says whether all of this is allowed here.
"""

import argparse
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

_SUBNET = "10.77.0"
_SPARK_READY_S = 180.0
_BURST = "256kb"
"""What a limited link takes at once: four of the largest segments that the kernel hands down."""
_TOOLS = ("ip", "unshare", "nsenter", "mount", "hostname")
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))


class NotAllowedError(RuntimeError):
    """Namespaces cannot be made here; the message says why, in one line."""


def _run(*command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PATH": _PATH}
    )
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise NotAllowedError(f"{' '.join(command)}: {lines[-1] if lines else done.returncode}")
    return done.stdout


class Hosts:
    """So many hosts, until it is closed. Raises NotAllowedError where they cannot be made."""

    def __init__(self, count: int, clock_ahead_s: Sequence[int] = ()) -> None:
        """`clock_ahead_s`: what the monotonic clock of each host is ahead of this machine's."""
        for tool in _TOOLS:
            if shutil.which(tool, path=_PATH) is None:
                raise NotAllowedError(f"the command {tool} is missing")
        if os.geteuid() != 0:
            raise NotAllowedError("network namespaces need root")
        self._ends = ExitStack()
        self._prefix = f"tailrace-{secrets.token_hex(3)}"
        self._holders: list[subprocess.Popen[bytes]] = []
        self.addresses = [f"{_SUBNET}.{number + 11}" for number in range(count)]
        try:
            self._switch = self._namespace("switch")
            _run("ip", "-n", self._switch, "link", "add", "br0", "type", "bridge")
            _run("ip", "-n", self._switch, "link", "set", "br0", "up")
            for number in range(count):
                self._add(number, clock_ahead_s[number] if clock_ahead_s else 0)
        except BaseException:
            self.close()
            raise

    def _namespace(self, name: str) -> str:
        full = f"{self._prefix}-{name}"
        _run("ip", "netns", "add", full)
        self._ends.callback(_ignore, "ip", "netns", "del", full)
        return full

    def _add(self, number: int, clock_ahead_s: int) -> None:
        name, port = self._namespace(str(number)), f"p{number}"
        link = ("link", "add", "eth0", "type", "veth", "peer", "name", port)
        _run("ip", "-n", name, *link, "netns", self._switch)
        _run("ip", "-n", name, "addr", "add", f"{self.addresses[number]}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _run("ip", "-n", name, "link", "set", device, "up")
        _run("ip", "-n", self._switch, "link", "set", port, "master", "br0", "up")
        # A process that holds the other namespaces of this host until it is told to end.
        clock = ("--time", "--monotonic", str(clock_ahead_s)) if clock_ahead_s else ()
        namespaces = ["unshare", "--mount", "--uts", *clock, "--fork", "--kill-child"]
        setup = (
            "mount -t tmpfs -o mode=1777 tmpfs /dev/shm && hostname $0 && echo ready && read end"
        )
        holder = subprocess.Popen(
            ["ip", "netns", "exec", name, *namespaces, "sh", "-c", setup, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PATH": _PATH},
        )
        self._holders.append(holder)
        self._ends.callback(_end, holder)
        assert holder.stdout is not None and holder.stderr is not None
        if holder.stdout.readline() != b"ready\n":
            reason = holder.stderr.read().decode(errors="replace").strip().splitlines()
            raise NotAllowedError(f"a host of its own: {reason[-1] if reason else 'refused'}")

    def limit(self, rate: str) -> None:
        """Let each host send and receive so much at most, such as "1gbit"; "" lifts the limit.

        Raises NotAllowedError where the kernel has no token buckets.
        """
        if shutil.which("tc", path=_PATH) is None:
            raise NotAllowedError("the command tc is missing")
        for number in range(len(self.addresses)):
            ends = ((f"{self._prefix}-{number}", "eth0"), (self._switch, f"p{number}"))
            for name, device in ends:
                if rate:
                    bucket = ("tbf", "rate", rate, "burst", _BURST, "latency", "50ms")
                    _run("tc", "-n", name, "qdisc", "replace", "dev", device, "root", *bucket)
                else:
                    _ignore("tc", "-n", name, "qdisc", "del", "dev", device, "root")

    def on(self, number: int) -> list[str]:
        """What to put before a command so that it runs on a host."""
        pid = _child(self._holders[number].pid)
        return ["nsenter", "--target", str(pid), "--net", "--mount", "--uts", "--time"]

    def close(self) -> None:
        """End what still runs on the hosts, and remove them."""
        for number in range(len(self._holders)):
            with suppress(NotAllowedError):
                for pid in _run("ip", "netns", "pids", f"{self._prefix}-{number}").split():
                    if int(pid) not in {holder.pid for holder in self._holders}:
                        with suppress(ProcessLookupError):
                            os.kill(int(pid), 9)
        self._ends.close()

    def __enter__(self) -> "Hosts":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _ignore(*command: str) -> None:
    with suppress(NotAllowedError):
        _run(*command)


def _end(holder: "subprocess.Popen[bytes]") -> None:
    for pipe in (holder.stdin, holder.stdout, holder.stderr):
        if pipe is not None:
            pipe.close()
    try:
        holder.wait(timeout=2.0)
    except subprocess.TimeoutExpired:
        holder.kill()
        holder.wait()


def _child(pid: int) -> int:
    """The process that unshare has forked into the host's namespaces."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def allowed() -> str:
    """Why hosts cannot be made here; empty: they can."""
    try:
        Hosts(1).close()
    except NotAllowedError as error:
        return str(error)
    return ""


class SparkCluster:
    """A standalone cluster: master and driver on host 0, a worker of `cores` on each other one."""

    def __init__(self, hosts: Hosts, cores: int, folder: Path) -> None:
        import pyspark

        home = str(Path(pyspark.__file__).parent)
        self._folder = folder
        self._ends = ExitStack()
        self.environment = {
            **os.environ,
            "PATH": _PATH,
            "SPARK_HOME": home,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_MASTER_URL": f"spark://{hosts.addresses[0]}:7077",
        }
        self.url = self.environment["SPARK_MASTER_URL"]
        deploy = "org.apache.spark.deploy"
        try:
            address = ("-h", hosts.addresses[0], "-p", "7077")
            self._start(hosts, 0, home, f"{deploy}.master.Master", *address)
            self._await("0.log", "New state: ALIVE")
            for number in range(1, len(hosts.addresses)):
                where = ("-h", hosts.addresses[number], "-d", str(folder / str(number)))
                offer = ("-c", str(cores), "-m", "2g", self.url)
                self._start(hosts, number, home, f"{deploy}.worker.Worker", *where, *offer)
            for number in range(1, len(hosts.addresses)):
                self._await(f"{number}.log", "Successfully registered")
        except BaseException:
            self.close()
            raise

    def _start(self, hosts: Hosts, number: int, home: str, *command: str) -> None:
        with (self._folder / f"{number}.log").open("wb") as log:
            process = subprocess.Popen(
                [*hosts.on(number), f"{home}/bin/spark-class", *command],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**self.environment, "SPARK_LOCAL_IP": hosts.addresses[number]},
            )
        self._ends.callback(_terminate, process)

    def _await(self, log: str, text: str) -> None:
        deadline_s = time.monotonic() + _SPARK_READY_S
        path = self._folder / log
        while text not in path.read_text(errors="replace"):
            if time.monotonic() > deadline_s:
                tail = path.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"Spark does not say {text!r} within {_SPARK_READY_S} s: {tail}")
            time.sleep(0.1)

    def close(self) -> None:
        """End master and workers."""
        self._ends.close()


def _terminate(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(timeout=5.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main() -> int:
    """See the top."""
    parser = argparse.ArgumentParser(description="A standalone Spark cluster of namespace hosts.")
    parser.add_argument("--hosts", type=int, default=2, help="how many have a Spark worker")
    parser.add_argument("--cores", type=int, default=2, help="that each of them offers")
    parser.add_argument("command", nargs="*", help="what to run on the driver's host")
    options = parser.parse_args()
    if not options.command:
        reason = allowed()
        print(f"not allowed here: {reason}" if reason else "allowed here")
        return 0
    with tempfile.TemporaryDirectory(prefix="tailrace-hosts-") as folder, ExitStack() as ends:
        hosts = ends.enter_context(Hosts(1 + options.hosts))
        cluster = SparkCluster(hosts, options.cores, Path(folder))
        ends.callback(cluster.close)
        return subprocess.run(
            [*hosts.on(0), *options.command],
            env={**cluster.environment, "SPARK_LOCAL_IP": hosts.addresses[0]},
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
