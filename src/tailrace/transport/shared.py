"""A piece of memory that the processes of a node share, found by its address.

As a ring's: a sealed memfd without a name, reached through `/proc/<pid>/fd` of its creator, with a
nonce against recycled numbers. It goes with the last process that has it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import secrets

_NONCE_BYTES = 16
_PAGE_BYTES = mmap.PAGESIZE
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class SharedMemoryError(OSError):
    """The memory cannot be reached; the message says why."""


class SharedMemory:
    """Zeroed memory of a size; others attach to its `address` while this is open."""

    def __init__(self, size_bytes: int) -> None:
        self._fd = os.memfd_create("tailrace", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.fchmod(self._fd, 0o600)
        os.ftruncate(self._fd, _PAGE_BYTES + size_bytes)
        fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, _SEALS)
        nonce = secrets.token_bytes(_NONCE_BYTES)
        self._mapped = mmap.mmap(self._fd, _PAGE_BYTES + size_bytes)
        self._mapped[:_NONCE_BYTES] = nonce
        self.address = f"{os.getpid()}/{self._fd}/{nonce.hex()}"
        self.memory = memoryview(self._mapped)[_PAGE_BYTES:]

    def close(self) -> None:
        """Nobody attaches any more; who has it keeps it. Views on it here must be gone."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self.memory.release()
            self._mapped.close()  # it has a descriptor of its own


def attach(address: str) -> memoryview:
    """The memory of that address; SharedMemoryError if it cannot be reached from here."""
    match = re.fullmatch(r"(\d+)/(\d+)/([0-9a-f]{32})", address)
    if match is None:
        raise SharedMemoryError(f"{address!r} is not the address of memory (pid/descriptor/nonce)")
    try:
        fd = os.open(f"/proc/{match[1]}/fd/{match[2]}", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise SharedMemoryError(
            f"the memory {address} cannot be reached ({error.strerror}): its creator has ended, or"
            " is on another node or of another user"
        ) from None
    try:
        if os.pread(fd, _NONCE_BYTES, 0).hex() != match[3]:
            raise SharedMemoryError(f"other memory than that of {address} is there now")
        return memoryview(mmap.mmap(fd, 0))[_PAGE_BYTES:]
    finally:
        os.close(fd)
