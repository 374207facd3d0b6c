# cython: language_level=3
"""Equal short texts as one object: words, user ids and other keys come over and over.

A text that has been seen lately is handed out again instead of a copy. That saves its allocation,
and more than that later: one object has its hash computed once, and dictionaries find it without
comparing characters.

The texts wait in a table of pairs of slots; a new one takes the place of the older of its pair. So
this is bounded, forgets what is not used, and a text that is not in it costs a few nanoseconds.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

cdef extern from "Python.h":
    bint PyUnicode_CheckExact(object)
    bint PyUnicode_IS_COMPACT_ASCII(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)
    void *PyUnicode_DATA(object)
    object PyUnicode_New(Py_ssize_t, Py_UCS4)

cdef enum:
    MOST_BYTES = 40
    PAIR_BITS = 12

cdef PyObject *slots[1 << PAIR_BITS][2]


cdef inline uint64_t _mix(uint64_t hash, uint64_t word) noexcept:
    hash ^= word
    return (hash ^ hash >> 32) * 0x9E3779B97F4A7C15ULL


cdef inline size_t _pair(const char *at, Py_ssize_t size) noexcept:
    cdef uint64_t hash = <uint64_t>size, word = 0
    cdef uint32_t low = 0, high = 0
    cdef const char *last
    if size >= 8:
        last = at + size - 8
        while at < last:
            memcpy(&word, at, 8)
            hash = _mix(hash, word)
            at += 8
        memcpy(&word, last, 8)
    elif size >= 4:
        memcpy(&low, at, 4)
        memcpy(&high, at + size - 4, 4)
        word = <uint64_t>high << 32 | low
    elif size > 0:
        word = <uint64_t><unsigned char>at[0] << 16 | <uint64_t><unsigned char>at[size // 2] << 8
        word |= <unsigned char>at[size - 1]
    return _mix(_mix(hash, word), 0) >> (64 - PAIR_BITS)


cdef inline bint _is(PyObject *known, const char *at, Py_ssize_t size) noexcept:
    if known is NULL or PyUnicode_GET_LENGTH(<object>known) != size:
        return False
    return memcmp(PyUnicode_DATA(<object>known), at, size) == 0


cdef inline PyObject *_find(PyObject **pair, const char *at, Py_ssize_t size) noexcept:
    if _is(pair[0], at, size):
        return pair[0]
    if _is(pair[1], at, size):
        pair[0], pair[1] = pair[1], pair[0]
        return pair[0]
    return NULL


cdef inline void _keep(PyObject **pair, object text) noexcept:
    cdef PyObject *oldest = pair[1]
    pair[1] = pair[0]
    pair[0] = <PyObject *>text
    Py_INCREF(text)
    Py_XDECREF(oldest)


cdef object text_of(const char *at, Py_ssize_t size):
    """The ASCII text in that memory."""
    cdef PyObject **pair
    cdef PyObject *known
    if size <= MOST_BYTES:
        pair = slots[_pair(at, size)]
        known = _find(pair, at, size)
        if known is not NULL:
            return <object>known
    text = PyUnicode_New(size, 127)
    memcpy(PyUnicode_DATA(text), at, size)
    if size <= MOST_BYTES:
        _keep(pair, text)
    return text


cdef object one_object(object record):
    """The record itself or, for a short text, the object that stands for all texts like it."""
    cdef PyObject **pair
    cdef PyObject *known
    cdef const char *at
    cdef Py_ssize_t size
    if not PyUnicode_CheckExact(record) or not PyUnicode_IS_COMPACT_ASCII(record):
        return record
    size = PyUnicode_GET_LENGTH(record)
    if size > MOST_BYTES:
        return record
    at = <const char *>PyUnicode_DATA(record)
    pair = slots[_pair(at, size)]
    known = _find(pair, at, size)
    if known is not NULL:
        return <object>known
    _keep(pair, record)
    return record
