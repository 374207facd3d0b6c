"""Messages made of several parts, and the batch form: records, each behind its length (4 bytes)."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy


def copies_of(batch):
    """The records of a batch message (kind 1) as a list of bytes."""
    cdef Py_ssize_t at = 0
    cdef uint32_t length
    cdef Py_buffer view
    cdef list records = []
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        while at < view.len:
            at = _record_at(<const uint8_t *>view.buf, at, view.len, &length)
            records.append(PyBytes_FromStringAndSize(<const char *>view.buf + at, length))
            at += length
    finally:
        PyBuffer_Release(&view)
    return records


cdef inline Py_ssize_t _record_at(const uint8_t *batch, Py_ssize_t at, Py_ssize_t end,
                                  uint32_t *length) except -1:
    """Where the record whose length stands at `at` begins."""
    if end - at < 4:
        raise ValueError(f"batch of {end} bytes ends inside the length at {at}")
    memcpy(length, batch + at, 4)
    at += 4
    if length[0] > end - at:
        raise ValueError(f"record at {at} says {length[0]} bytes; the batch has {end - at} left")
    return at


cdef Py_ssize_t length_of(list parts, Py_ssize_t prefix_bytes) except -1:
    """How long a message of these parts is, each behind ``prefix_bytes`` (0 or 4) of its length."""
    cdef Py_buffer view
    cdef Py_ssize_t total = 0
    for part in parts:
        total += prefix_bytes
        if type(part) is bytes:
            total += PyBytes_GET_SIZE(part)
        else:
            PyObject_GetBuffer(part, &view, PyBUF_SIMPLE)
            total += view.len
            PyBuffer_Release(&view)
    return total


cdef int write_parts(uint8_t *into, Py_ssize_t total, list parts,
                     Py_ssize_t prefix_bytes) except -1:
    cdef Py_buffer view
    cdef uint32_t length
    cdef Py_ssize_t left = total
    for part in parts:
        PyObject_GetBuffer(part, &view, PyBUF_SIMPLE)
        try:
            left -= prefix_bytes + view.len
            if left < 0:
                raise ValueError("a part grew while it was sent")
            if prefix_bytes:
                length = <uint32_t>view.len  # little-endian, as every platform we run on is
                memcpy(into, &length, 4)
                into += 4
            memcpy(into, view.buf, view.len)
            into += view.len
        finally:
            PyBuffer_Release(&view)
    if left != 0:
        raise ValueError("a part shrank while it was sent")
    return 0
