cdef class Shards:
    cdef dict only
    cdef list parts
    cdef Py_ssize_t popped

    cdef dict part(self, key)
    cdef int put(self, key, value) except -1
    cdef int divide(self) except -1
