from libc.stdint cimport uint8_t

cdef enum:
    RAW_KIND = 0
    BATCH_KIND = 1

cdef Py_ssize_t length_of(list parts, Py_ssize_t prefix_bytes) except -1
cdef int write_parts(uint8_t *into, Py_ssize_t total, list parts,
                     Py_ssize_t prefix_bytes) except -1
