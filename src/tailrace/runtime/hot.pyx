# cython: language_level=3
"""The two loops that run once for every record of every keyed stream, in C."""

from cpython.dict cimport PyDict_GetItemWithError, PyDict_SetItem
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject


def deal_by_key(records, key_of, dict targets not None, list parts not None, place):
    """Put each record into the part of its key.

    `targets` knows the parts of keys seen before; `place(key)` finds that of a new one. The record
    is its own key if `key_of` is None.
    """
    cdef Py_ssize_t index
    cdef PyObject *known
    for record in records:
        key = record if key_of is None else key_of(record)
        known = PyDict_GetItemWithError(targets, key)
        index = place(key) if known is NULL else <object>known
        if not 0 <= index < PyList_GET_SIZE(parts):
            raise IndexError(f"part {index} of {PyList_GET_SIZE(parts)}")
        (<list>parts[index]).append(record)


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
