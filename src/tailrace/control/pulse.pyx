# cython: language_level=3
"""A sign of life that another thread watches without ever taking the interpreter's lock."""

import os

from libc.stdint cimport int64_t


cdef extern from "<time.h>" nogil:
    ctypedef long time_t
    struct timespec:
        time_t tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec *now)
    enum:
        CLOCK_MONOTONIC

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *fds, unsigned long count, int timeout_ms)
    enum:
        POLLIN


cdef int64_t _now_ms() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1_000_000


cdef class Pulse:
    """`beat` says that all is well; `await_silence` returns when that was long ago."""

    cdef int64_t _beat_ms
    cdef int _fd

    def __init__(self):
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._beat_ms = _now_ms()

    def beat(self):
        """All is well."""
        self._beat_ms = _now_ms()

    def await_silence(self, int64_t most_ms):
        """Wait until no beat has come for so long. False: it has been stopped."""
        cdef pollfd stopped
        cdef int64_t left_ms
        stopped.fd = self._fd
        stopped.events = POLLIN
        with nogil:
            while True:
                # Written by the other thread; an old value only makes for one look more.
                left_ms = (<volatile int64_t *>&self._beat_ms)[0] + most_ms - _now_ms()
                if left_ms <= 0:
                    break
                if poll(&stopped, 1, <int>left_ms) > 0:
                    break
        return left_ms <= 0

    def stop(self):
        """Have whoever waits return; to be called while it may be waiting."""
        os.eventfd_write(self._fd, 1)

    def close(self):
        """Give up what it holds, when nobody waits any more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
