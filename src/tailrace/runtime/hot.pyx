# cython: language_level=3
"""What runs for every record or for every batch, in C."""

from cpython.dict cimport PyDict_DelItem, PyDict_GetItemWithError, PyDict_SetItem, PyDict_Update
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject
from libc.math cimport fabs, llrint
from libc.stdint cimport int64_t

from tailrace.runtime.shards cimport Shards

cdef extern from *:
    int __builtin_clzll(unsigned long long) noexcept


cpdef enum:
    SUB_BITS = 5  # of histograms: 32 buckets per power of two


cpdef int note(counts, int64_t value_ns, int64_t count) except -1:
    """Add `count` to the bucket of a duration; `counts` is a histogram's dictionary."""
    cdef int64_t bucket = max(value_ns, 0)
    cdef int shift
    cdef PyObject *known
    if bucket >= 2 << SUB_BITS:
        shift = 63 - SUB_BITS - __builtin_clzll(bucket)
        bucket = (shift << SUB_BITS) + (bucket >> shift)
    key = bucket
    known = PyDict_GetItemWithError(counts, key)
    PyDict_SetItem(counts, key, count if known is NULL else <object>known + count)
    return 0


def merge(counts, other):
    """Add what one histogram's dictionary has to another's. Many are, in the middle of the work."""
    cdef PyObject *known
    if not counts:
        PyDict_Update(counts, other)
        return
    for bucket, count in other.items():
        known = PyDict_GetItemWithError(counts, bucket)
        PyDict_SetItem(counts, bucket, count if known is NULL else <object>known + count)


def scan(records, bint pairs, function, Shards states not None, fresh, list results):
    """`states[key] = function(states[key], record)` for each record; (key, state) into `results`.

    There are `pairs` of a record and its key, or records that are their own. `fresh(key)` gives the
    state of a key that is not there; one whose state becomes None is forgotten. `results` may be None.
    What was done before a record that raises is kept.
    """
    cdef PyObject *known
    cdef dict part
    for record in records:
        if pairs:
            record, key = <tuple>record
        else:
            key = record
        part = states.part(key)
        known = PyDict_GetItemWithError(part, key)
        if known is not NULL:
            state = function(<object>known, record)
            if state is not None:
                PyDict_SetItem(part, key, state)  # which does not become larger
            else:
                PyDict_DelItem(part, key)
        else:
            state = function(fresh(key), record)
            if state is not None:
                states.put(key, state)
            else:
                states.part(key).pop(key, None)
        if results is not None:
            results.append((key, state))


def flat_map(records, function, list results not None):
    """All that `function(record)` gives for each record, into `results`.

    What was done before a record that raises is kept, and nothing of that record.
    """
    cdef Py_ssize_t before
    for record in records:
        before = PyList_GET_SIZE(results)
        try:
            results.extend(function(record))
        except BaseException:
            del results[before:]
            raise


cdef extern from "Python.h":
    bint PyObject_IS_GC(object)
    void PyObject_GC_UnTrack(PyObject *)
    long long PyLong_AsLongLongAndOverflow(object, int *overflow) except? -1


def untracked(keys):
    """A tuple of them that Python's collector does not look through, if all of them are plain."""
    cdef tuple found = tuple(keys)
    for key in found:
        if PyObject_IS_GC(key):
            return found
    if found:  # there is one empty tuple, which is not ours
        PyObject_GC_UnTrack(<PyObject *>found)
    return found


cdef int64_t MOST_S = 9_223_372_036  # of which nanoseconds have 63 bits
# There a float is within 0.23 ns of what was written, and the product within another 0.13.
cdef double EXACT_S = 2.0 ** 21


def seconds_to_ns(moment):
    """A plain int or float of seconds in nanoseconds; None for all else, and what is too large.

    A float holds nanoseconds below `EXACT_S`, and above it (until 2255) microseconds.
    """
    cdef double seconds
    cdef long long whole
    cdef int overflow = 0
    if type(moment) is float:
        seconds = moment
        if fabs(seconds) < EXACT_S:
            return llrint(seconds * 1e9)
        if fabs(seconds) < MOST_S:  # not so for nan
            return llrint(seconds * 1e6) * 1000
    elif type(moment) is int:
        whole = PyLong_AsLongLongAndOverflow(moment, &overflow)
        if not overflow and -MOST_S < whole < MOST_S:
            return whole * 1_000_000_000
    return None
