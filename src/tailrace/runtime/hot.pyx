# cython: language_level=3
"""What runs for every record or for every batch, in C."""

from cpython.dict cimport PyDict_GetItemWithError, PyDict_SetItem
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from tailrace.transport.texts cimport one_object

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


def deal_by_key(records, key_of, dict targets not None, list parts not None, place):
    """Put each record into the part of its key.

    `targets` knows the parts of keys seen before; `place(key)` finds that of a new one. The record
    is its own key if `key_of` is None.
    """
    cdef Py_ssize_t index
    cdef PyObject *known
    for record in records:
        if key_of is None:
            key = record = one_object(record)
        else:
            key = key_of(record)
        known = PyDict_GetItemWithError(targets, key)
        index = place(key) if known is NULL else <object>known
        if not 0 <= index < PyList_GET_SIZE(parts):
            raise IndexError(f"part {index} of {PyList_GET_SIZE(parts)}")
        (<list>parts[index]).append(record)


def same_keys(list records not None):
    """Put for each short text the object that stands for all like it, as `deal_by_key` does."""
    cdef Py_ssize_t i
    for i in range(PyList_GET_SIZE(records)):
        records[i] = one_object(records[i])


def scan(records, key_of, function, dict states not None, fresh, list results not None):
    """`states[key] = function(states[key], record)` for each record; (key, state) into `results`.

    `fresh()` makes the state of a new key. What was done before a record that raises is kept.
    """
    cdef PyObject *known
    for record in records:
        key = record if key_of is None else key_of(record)
        known = PyDict_GetItemWithError(states, key)
        state = function(fresh() if known is NULL else <object>known, record)
        PyDict_SetItem(states, key, state)
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
