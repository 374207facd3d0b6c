"""Memory that processes of a node share."""

import os
import subprocess
import sys

import pytest

from tailrace.transport.shared import SharedMemory, SharedMemoryError, attach


def test_what_one_process_writes_another_sees() -> None:
    shared = SharedMemory(64)
    program = f"from tailrace.transport.shared import attach; attach({shared.address!r})[7] = 42"
    subprocess.run([sys.executable, "-c", program], check=True)
    assert bytes(shared.memory) == bytes(7) + b"*" + bytes(56)
    shared.close()


def test_it_stays_with_who_has_it_when_its_creator_lets_go() -> None:
    shared = SharedMemory(64)
    mine = attach(shared.address)
    shared.close()
    mine[0] = 1
    with pytest.raises(SharedMemoryError, match=r"cannot be reached|other memory"):
        attach(shared.address)


def test_another_one_under_the_same_numbers_is_not_taken_for_it() -> None:
    shared = SharedMemory(64)
    pid, fd, _ = shared.address.split("/")
    with pytest.raises(SharedMemoryError, match="other memory"):
        attach(f"{pid}/{fd}/{'0' * 32}")
    with pytest.raises(SharedMemoryError, match="not the address"):
        attach("somewhere")
    assert os.fstat(int(fd)).st_mode & 0o777 == 0o600
    shared.close()
