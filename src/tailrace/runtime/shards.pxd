cdef class Shards:
    cdef dict only
    cdef list slots  # each with the dictionary for its hashes, which others next to it may have, too
    cdef Py_ssize_t popped

    cdef dict part(self, key)
    cdef int put(self, key, value) except -1
    cdef int divide(self, key, dict part) except -1
