"""Nothing stays behind, however a side ends: no memory, no socket, no descriptor, no process."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.transport.ring import Ring, RingError
from tests.transport.draining import received

OWNER = """
import sys
from tailrace.transport.ring import Ring
ring = Ring.create(1 << 16)
reader = ring.reader()
print(ring.address, flush=True)
reader.wait(60)
held = reader.read()
view = memoryview(held)
print("holding", flush=True)
line = sys.stdin.readline()
if line == "raise\\n":
    raise RuntimeError("on purpose")
"""

WRITER = """
import sys
from tailrace.transport.ring import Ring
ring = Ring.attach(sys.argv[1])
writer = ring.writer()
writer.send(b"hello")
print("sent", flush=True)
line = sys.stdin.readline()
if line == "raise\\n":
    raise RuntimeError("on purpose")
"""


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


def inodes(pid: int) -> set[str]:
    """What a process has open of a ring: its memory and its doorbells, by inode."""
    found = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        link = str(descriptor.readlink())
        if link.startswith("socket:"):
            found.add(link.removeprefix("socket:[").removesuffix("]"))
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if "memfd:tailrace" in line:
            found.add(line.split()[4])
    return found


def left_of(known: set[str]) -> set[str]:
    """Those inodes that some process still maps, or that are still sockets."""
    left = {line.split()[6] for line in Path("/proc/net/unix").read_text().splitlines()} & known
    for process in Path("/proc").glob("[0-9]*"):
        try:
            maps = (process / "maps").read_text(errors="replace").splitlines()
        except OSError:
            continue  # it has ended meanwhile
        left |= {line.split()[4] for line in maps if "memfd:tailrace" in line} & known
    return left


def start(script: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: "subprocess.Popen[str]", how: str) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    if how.startswith("SIG"):
        process.send_signal(getattr(signal, how))
    else:
        process.stdin.write(f"{how}\n")
        process.stdin.flush()
    process.wait()
    process.stdin.close()
    process.stdout.close()


@pytest.mark.parametrize("how", ["return", "raise", "SIGTERM", "SIGKILL"])
@pytest.mark.parametrize("first", ["owner", "writer"])
def test_nothing_is_left_when_a_side_ends(first: str, how: str) -> None:
    before = shared_memory()
    owner = start(OWNER)
    address = line_of(owner)
    writer = start(WRITER, address)
    assert (line_of(writer), line_of(owner)) == ("sent", "holding")
    known = inodes(owner.pid) | inodes(writer.pid)
    assert len(left_of(known)) == 3, "one memory and two doorbells, while both live"
    sides = [owner, writer] if first == "owner" else [writer, owner]
    end(sides[0], how)
    if first == "owner":
        with pytest.raises(RingError, match="cannot be reached"):
            Ring.attach(address)
    end(sides[1], "return")
    assert left_of(known) == set()
    assert {name for name in shared_memory() - before if "tailrace" in name} == set()


def test_descriptors_and_memory_come_back_in_the_process_itself() -> None:
    def open_and_close() -> None:
        with Ring.create(1 << 16) as ring, ring.reader() as reader, ring.writer() as writer:
            writer.send(b"x")
            with Ring.attach(ring.address) as again, again.writer() as other:
                other.send(b"y")
            assert len(received(reader)) == 2

    def in_use() -> tuple[int, int]:
        maps = Path("/proc/self/maps").read_text().count("memfd:tailrace")
        return len(list(Path("/proc/self/fd").iterdir())), maps

    open_and_close()
    before = in_use()
    for _ in range(50):
        open_and_close()
    assert in_use() == before
