# cython: language_level=3
"""All keys of a dictionary, some at a time, while it changes."""

from cpython.dict cimport PyDict_Next
from cpython.object cimport PyObject

cdef extern from *:
    """
    static const void *table_of(PyObject *dict) { return ((PyDictObject *)dict)->ma_keys; }
    """
    const void *table_of(dict of) noexcept


cdef class Sweep:
    """Gives every key that is there all the time, at least once; others may come or not.

    To list a million keys would stop everything for some ten milliseconds. A dictionary that makes
    room puts its keys elsewhere: then the sweep begins anew.
    """

    cdef dict of
    cdef Py_ssize_t at
    cdef const void *table

    def __init__(self, dict of not None):
        self.of = of
        self.table = table_of(of)

    def some(self, Py_ssize_t most):
        """Up to so many keys; none: that were all."""
        cdef PyObject *key = NULL
        cdef list found = []
        if table_of(self.of) != self.table:
            self.table = table_of(self.of)
            self.at = 0
        while most > 0 and PyDict_Next(self.of, &self.at, &key, NULL):
            found.append(<object>key)
            most -= 1
        return found
