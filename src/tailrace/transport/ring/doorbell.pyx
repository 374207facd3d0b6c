"""The doorbell: what a thread sleeps on until another process wants it."""

from tailrace.transport.ring.memory cimport forks
from tailrace.transport.ring.native cimport (
    descriptor_wait, doorbell, doorbell_clear, doorbell_close, doorbell_open, doorbell_ring,
)

import os

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uint64_t

from tailrace.transport.ring.memory import RingError


cdef class Doorbell:
    """Something to sleep on, in any poll or epoll, that other processes ring through a ring.

    One doorbell can serve all the rings a thread takes part in. A ring is remembered until
    ``clear``, so ring-then-sleep does not sleep.
    """

    def __cinit__(self):
        self.bell.fd = -1
        self.born = forks()
        cdef int error = doorbell_open(&self.bell)
        if error < 0:
            raise RingError(f"cannot open a doorbell: {os.strerror(-error)}")

    def __dealloc__(self):
        doorbell_close(&self.bell)

    def fileno(self):
        """The descriptor to wait on until it is readable."""
        return self.bell.fd

    def ring(self):
        """Ring it oneself, from any thread of the process."""
        doorbell_ring(audible(self), self.bell.name)

    def clear(self):
        """Take one ring back, after the descriptor was readable."""
        doorbell_clear(audible(self))

    def close(self):
        """Close it. Rings that still name it lose nothing but the wake-up."""
        doorbell_close(&self.bell)


def wait_on(int fd, double most_s):
    """Sleep until a descriptor is readable or the time is over; to the microsecond.

    An epoll waits in whole milliseconds, a select for descriptors below 1,024 only.
    """
    cdef uint64_t most_ns = <uint64_t>(most_s * 1e9) if most_s > 0 else 0
    cdef bint ready
    with nogil:
        ready = descriptor_wait(fd, most_ns)
    PyErr_CheckSignals()
    return ready


cdef doorbell *audible(Doorbell self) except NULL:
    if self.bell.fd < 0:
        raise RingError("the doorbell is closed")
    if self.born != forks():
        raise RingError("this doorbell is the parent process's; a forked child needs its own")
    return &self.bell
