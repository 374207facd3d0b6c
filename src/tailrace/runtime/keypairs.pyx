# cython: language_level=3
"""Which key led to which: for some of the records that come to an instance by key.

What follows from a record is known for sure only if it is processed alone. So one in many is: those
before it go as they are, then it, then those behind. While it is under way, the instance's routers see
its key, and count the pair of it and the key by which they send. How many are taken is adapted, so that
this takes a small share of the time; records go their way in the same order as ever.
"""

from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport int64_t, uint64_t

from tailrace.runtime.exchange cimport Stamp

cdef enum:
    FIRST_EVERY = 64
    ADAPT_NS = 50000000  # how often
    PER_S = 1000  # samples, at most
    SHARE = 128  # of the time, one part in so many, at most


cdef class PairCounter:
    """Of one instance: takes its batches to its first step, some records apart from the others.

    `by_key` says of each port whether its records come by key. With `every`, one record in so many on
    average, whatever that costs; 1: all.
    """

    def __init__(self, list by_key not None, clock_ns, every=None):
        self.by_key = by_key
        self.clock_ns = clock_ns
        self.adapts = every is None
        self.every = FIRST_EVERY if every is None else every
        if self.every < 1:
            raise ValueError(f"one record in {every} is to be counted; it must be at least 1")
        self.random = 0x9E3779B97F4A7C15ULL  # runs can be repeated
        self.since_ns = clock_ns()
        self._next()

    def clear(self):
        """Begin anew."""
        self.records = self.sampled = 0

    @property
    def scale(self):
        """How many records each one that was counted stands for."""
        return self.records / self.sampled if self.sampled else 1.0

    cdef int _next(self) noexcept:
        """How many records go by before the next is counted: by chance, so that no rhythm is missed."""
        self.random ^= self.random << 13
        self.random ^= self.random >> 7
        self.random ^= self.random << 17
        self.left = <int64_t>(self.random >> 11) % (2 * self.every - 1)
        return 0

    cdef int put(self, put, int port, list batch, list keys, int64_t emitted_ns, int64_t origin,
                 Stamp stamp) except -1:
        """As `put(batch, keys)`, of records that were emitted then. Without keys they are their own."""
        cdef Py_ssize_t size = PyList_GET_SIZE(batch), start = 0, at
        if not self.by_key[port]:
            put(batch, keys)
            return 0
        self.records += size
        while self.left < size - start:
            at = start + self.left
            if at > start:
                put(batch[start:at], None if keys is None else keys[start:at])
            self._one(put, batch, keys, at, emitted_ns, origin, stamp)
            stamp.emitted_ns, stamp.origin = emitted_ns, origin
            start = at + 1
            self._next()
        self.left -= size - start
        if not start:
            put(batch, keys)
        elif start < size:
            put(batch[start:], None if keys is None else keys[start:])
        if self.adapts and stamp.now_ns - self.since_ns >= ADAPT_NS:
            self._adapt(stamp.now_ns)
        return 0

    cdef int _one(self, put, list batch, list keys, Py_ssize_t at, int64_t emitted_ns, int64_t origin,
                  Stamp stamp) except -1:
        cdef int64_t started_ns = self.clock_ns()
        stamp.emitted_ns, stamp.origin = emitted_ns, origin
        self.key_in = batch[at] if keys is None else keys[at]
        self.open = True
        try:
            put([batch[at]], None if keys is None else [keys[at]])
        finally:
            self.open = False
            self.key_in = None
        self.sampled += 1
        self.spent_ns += <int64_t>self.clock_ns() - started_ns
        return 0

    cdef int _adapt(self, int64_t now_ns) noexcept:
        """Take so many that both bounds hold if things go on like this."""
        cdef int64_t elapsed_ns = now_ns - self.since_ns
        cdef int64_t records = self.records - self.since_records
        cdef int64_t sampled = max(self.sampled - self.since_sampled, <int64_t>1)
        cdef int64_t most = elapsed_ns * PER_S // 1000000000
        if records < 0 or self.sampled < self.since_sampled:  # it was cleared meanwhile
            records = self.records
            sampled = max(self.sampled, <int64_t>1)
        if self.spent_ns:
            most = min(most, elapsed_ns // SHARE * sampled // self.spent_ns)
        self.every = max(records // max(most, <int64_t>1), <int64_t>1)
        self.left = min(self.left, 2 * self.every)
        self.since_ns, self.since_records, self.since_sampled = now_ns, self.records, self.sampled
        self.spent_ns = 0
        return 0
