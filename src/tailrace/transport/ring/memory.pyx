"""The memory of a ring: made, found by its address, and whose it is.

A forked child has the mapping of its parent but no place in it, and a member of a ring belongs to
the thread that opened it: whoever uses the memory asks here first (`usable`, `mine`).
"""

from libc.stdint cimport uint8_t, uint64_t

from tailrace.transport.ring.native cimport ring

import os
import re

cdef extern from "native/members.h" nogil:
    const unsigned RING_MIN_BYTES, RING_MAX_BYTES, RING_VERSION
    int RING_NOT_A_RING, RING_OTHER_VERSION, RING_OTHER_SIZE

    int ring_create_as(ring *, uint64_t, bint, uint64_t, bint)
    int ring_attach_as(ring *, int, const uint8_t *, uint64_t *, bint)
    void ring_unmap(ring *)
    unsigned ring_forks
    int ring_watch_forks()


class RingError(Exception):
    """The ring cannot be used: not reachable, not a ring, no place left, or nobody at its end."""


# Before anything is opened: a doorbell can be there sooner than a ring.
if ring_watch_forks() != 0:
    raise ImportError("no memory left to be told of forks")


cdef class Memory:
    """The mapping. Ring, writers, readers and messages hold it; it goes with the last of them."""

    def __cinit__(self):
        self.ring.fd = -1
        self.forks = &ring_forks

    def __dealloc__(self):
        if not self.keep:
            ring_unmap(&self.ring)


cdef Memory create(size_bytes, bint shared, window, bint populate):
    if not RING_MIN_BYTES <= size_bytes <= RING_MAX_BYTES:
        raise ValueError(
            f"ring size is {size_bytes} bytes; it must be {RING_MIN_BYTES} to {RING_MAX_BYTES}"
        )
    if window < 1:
        raise ValueError(f"window is {window}; it must be at least 1 message")
    cdef Memory self = Memory()
    cdef int error = ring_create_as(&self.ring, size_bytes, shared, window, populate)
    if error < 0:
        raise RingError(f"cannot create a ring of {size_bytes} bytes: {os.strerror(-error)}")
    cdef bytes nonce = self.ring.control.nonce[:16]
    self.address = f"{os.getpid()}/{self.ring.fd}/{nonce.hex()}"
    return self


cdef Memory attach(str address, bint populate):
    match = re.fullmatch(r"(\d+)/(\d+)/([0-9a-f]{32})", address)
    if match is None:
        raise RingError(f"{address!r} is not the address of a ring (pid/descriptor/nonce)")
    cdef bytes nonce = bytes.fromhex(match[3])
    cdef Memory self = Memory()
    cdef uint64_t found = 0
    cdef int fd, result
    try:
        fd = os.open(f"/proc/{match[1]}/fd/{match[2]}", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise RingError(
            f"ring {address} cannot be reached ({error.strerror}): its creator has ended, or is"
            " on another node or of another user"
        ) from None
    try:
        result = ring_attach_as(&self.ring, fd, nonce, &found, populate)
    finally:
        os.close(fd)
    if result < 0:
        raise RingError(f"ring {address} cannot be mapped: {os.strerror(-result)}")
    if result != 0:
        raise RingError(f"{address} refused: {_refusal(result, found)}")
    self.address = address
    return self


cdef str _refusal(int result, uint64_t found):
    if result == RING_NOT_A_RING:
        return f"not a ring (it starts with, or is only as long as, {found:#x})"
    if result == RING_OTHER_VERSION:
        return f"ring layout version {found}; this process speaks {RING_VERSION}"
    if result == RING_OTHER_SIZE:
        return f"its {found} bytes are not the size it says it has"
    return "another ring is there now; the one of this address has ended"


cdef ring *usable(Memory memory) except NULL:
    """The ring in it, for this process."""
    if memory is None or memory.ring.control is NULL:
        raise RingError("the ring is closed")
    if inherited(memory):
        raise RingError(
            f"this ring was opened by the parent of process {os.getpid()}; a forked child has no"
            " place in it: use Ring.attach(ring.address) in the child"
        )
    return &memory.ring


cdef int refuse_thread() except -1:
    raise RingError("used by another thread than the one that opened it")


cdef unsigned forks() noexcept:
    return ring_forks
