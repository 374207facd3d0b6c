from libc.stdint cimport int64_t, uint64_t

from tailrace.runtime.exchange cimport Stamp


cdef class PairCounter:
    cdef readonly bint open  # whether what is put out now follows from one record, whose key is known
    cdef readonly object key_in
    cdef readonly int64_t records, sampled  # came by key; of these, counted
    cdef readonly int64_t every  # one in so many is
    cdef list by_key  # by port
    cdef object clock_ns
    cdef bint adapts
    cdef int64_t left, since_ns, since_records, since_sampled, spent_ns
    cdef uint64_t random

    cdef int put(self, put, int port, list batch, list keys, int64_t emitted_ns, int64_t origin,
                 Stamp stamp) except -1
    cdef int _one(self, put, list batch, list keys, Py_ssize_t at, int64_t emitted_ns, int64_t origin,
                  Stamp stamp) except -1
    cdef int _next(self) noexcept
    cdef int _adapt(self, int64_t now_ns) noexcept
