# cython: language_level=3
"""A clock that runs at the pace of another one: read several times for every batch, so in C."""

from libc.stdint cimport int64_t


cdef extern from "<time.h>" nogil:
    ctypedef long time_t
    struct timespec:
        time_t tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec *now)
    enum:
        CLOCK_MONOTONIC


cdef class JobClock:
    """This host's monotonic clock, bent to another clock's time. It never goes backwards.

    `raw_ns` is read in place of this host's clock, if given.
    """

    cdef object _raw_ns
    cdef int64_t _from_ns, _base_ns, _last_ns
    cdef double _rate, _error_ns, _horizon_ns

    def __init__(self, int64_t offset_ns=0, raw_ns=None):
        self._raw_ns = raw_ns
        self._base_ns = offset_ns
        self._horizon_ns = 1.0

    cdef int64_t _raw(self) except? -1:
        cdef timespec now
        if self._raw_ns is not None:
            return self._raw_ns()
        clock_gettime(CLOCK_MONOTONIC, &now)
        return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec

    cdef int64_t _at(self, int64_t raw_ns) noexcept:
        cdef int64_t since_ns = raw_ns - self._from_ns
        cdef double share = since_ns / self._horizon_ns
        return (
            self._base_ns
            + since_ns
            + <int64_t>(since_ns * self._rate + self._error_ns * min(share, 1.0))
        )

    def now_ns(self):
        """The time, in ns."""
        cdef int64_t now_ns = self._at(self._raw())
        if now_ns < self._last_ns:
            return self._last_ns
        self._last_ns = now_ns
        return now_ns

    def steer(self, int64_t raw_ns, int64_t offset_ns, double rate, int64_t horizon_ns):
        """Be `offset_ns` ahead of the raw clock at `raw_ns`, and gain `rate` of its time from then.

        What that differs from the clock's present time is made up for over `horizon_ns`, during
        which it is faster or slower; 0: at once, but never backwards.
        """
        cdef int64_t goal_ns = raw_ns + offset_ns, here_ns = self._at(raw_ns)
        self._from_ns = raw_ns
        self._rate = rate
        if horizon_ns <= 0:
            here_ns = goal_ns
        self._base_ns = here_ns
        self._error_ns = <double>(goal_ns - here_ns)
        self._horizon_ns = <double>max(horizon_ns, 1)

    def behind_ns(self, int64_t raw_ns):
        """What it has still to make up for at a time of the raw clock; negative: it is ahead."""
        cdef double share = min((raw_ns - self._from_ns) / self._horizon_ns, 1.0)
        return <int64_t>(self._error_ns * (1.0 - share))
