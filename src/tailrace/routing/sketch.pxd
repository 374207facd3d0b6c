from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint64_t


cdef struct Counter:
    PyObject *key_in
    PyObject *key_out
    uint64_t hash
    int64_t error
    int64_t bytes
    int32_t bucket
    int32_t before
    int32_t after


cdef struct Bucket:
    int64_t count
    int32_t first
    int32_t before
    int32_t after


cdef class PairSketch:
    cdef readonly int64_t size_bytes  # the bound
    cdef readonly int64_t used_bytes, total, floor, left_out
    cdef Counter *counters
    cdef Bucket *buckets
    cdef int32_t *table
    cdef int32_t room, used, slots, lowest, free_counter, free_bucket

    cpdef int add(self, key_in, key_out) except -1
    cdef int _forget(self) except -1
    cdef int32_t _find(self, uint64_t hash, key_in, key_out, int32_t *slot) except -2
    cdef int _raise(self, int32_t at) noexcept
    cdef int _join(self, int32_t at, int32_t bucket) noexcept
    cdef int _leave(self, int32_t at) noexcept
    cdef int32_t _new_bucket(self, int64_t count, int32_t behind) noexcept
    cdef int _insert(self, uint64_t hash, key_in, key_out, int64_t cost) except -1
    cdef int _evict(self) except -1
    cdef int _unlist(self, int32_t at) noexcept
    cdef int _grow(self) except -1
