from libc.stdint cimport int64_t


cdef class Loads:
    cdef readonly int rank
    cdef object attach
    cdef dict held
    cdef list unseen
    cdef int64_t **tables
    cdef int64_t *own
    cdef int known

    cdef int see(self) except -1
    cdef int add(self, int worker, int64_t work_ns) except -1
    cdef int64_t of(self, int worker) except -1
