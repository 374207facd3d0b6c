from libc.stdint cimport int64_t

cpdef int note(counts, int64_t value_ns, int64_t count) except -1
