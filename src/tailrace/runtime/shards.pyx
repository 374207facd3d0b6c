# cython: language_level=3
"""A mapping of many keys that never stops for long to make room.

A dictionary that is full copies all that it has: with a million keys that takes tens of
milliseconds. So one that has become large goes on as many small ones.
"""

from collections.abc import MutableMapping

from cpython.dict cimport (
    PyDict_Contains,
    PyDict_DelItem,
    PyDict_GetItemWithError,
    PyDict_SetItem,
    PyDict_Size,
)
from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

cdef enum:
    MOST = 2048  # keys in one dictionary
    SHIFT = 56  # leaves 256 of them

cdef uint64_t SPREAD = 0x9E3779B97F4A7C15  # hashes of numbers are these numbers
cdef object MISSING = object()


cdef class Shards:
    """See above. As with a dictionary, nobody may add or remove keys while it is gone through."""

    def __init__(self, entries=()):
        self.only = {}
        self.parts = None
        if entries:
            self.update(entries)

    cdef dict part(self, key):
        """Where a key is, if it is there. Not to be kept: a `put` may have it be elsewhere."""
        if self.parts is None:
            return self.only
        return <dict>self.parts[<Py_ssize_t>((<uint64_t>hash(key) * SPREAD) >> SHIFT)]

    cdef int put(self, key, value) except -1:
        PyDict_SetItem(self.part(key), key, value)
        if self.parts is None and PyDict_Size(self.only) > MOST:
            self.divide()
        return 0

    cdef int divide(self) except -1:
        before, self.only = self.only, None
        self.parts = [{} for _ in range(1 << (64 - SHIFT))]
        for key, value in before.items():
            PyDict_SetItem(self.part(key), key, value)
        return 0

    @property
    def dictionaries(self):
        """What has the keys now. Who goes through it in pieces finds all that stay meanwhile."""
        return [self.only] if self.parts is None else self.parts.copy()

    def __len__(self):
        if self.parts is None:
            return len(self.only)
        return sum(map(len, self.parts))

    def __bool__(self):
        return bool(self.only) if self.parts is None else any(self.parts)

    def __iter__(self):
        for part in self.dictionaries:
            yield from part

    def __contains__(self, key):
        return PyDict_Contains(self.part(key), key)

    def __getitem__(self, key):
        cdef PyObject *found = PyDict_GetItemWithError(self.part(key), key)
        if found is NULL:
            raise KeyError(key)
        return <object>found

    def __setitem__(self, key, value):
        self.put(key, value)

    def __delitem__(self, key):
        PyDict_DelItem(self.part(key), key)

    def keys(self):
        """All keys, one by one."""
        return iter(self)

    def items(self):
        """All keys with their values, one by one."""
        for part in self.dictionaries:
            yield from part.items()

    def values(self):
        """All values, one by one."""
        for part in self.dictionaries:
            yield from part.values()

    def get(self, key, default=None):
        """The value of a key, or the default."""
        cdef PyObject *found = PyDict_GetItemWithError(self.part(key), key)
        return default if found is NULL else <object>found

    def setdefault(self, key, default=None):
        """The value of a key; if it had none, the default is it from now on."""
        cdef PyObject *found = PyDict_GetItemWithError(self.part(key), key)
        if found is not NULL:
            return <object>found
        self.put(key, default)
        return default

    def pop(self, key, default=MISSING):
        """The value of a key, which is here no more."""
        if default is MISSING:
            return self.part(key).pop(key)
        return self.part(key).pop(key, default)

    def popitem(self):
        """Any key with its value, which is here no more."""
        if self.parts is None:
            return self.only.popitem()
        for _ in range(len(self.parts)):
            part = <dict>self.parts[self.popped]
            if part:
                return part.popitem()
            self.popped = (self.popped + 1) % len(self.parts)
        raise KeyError("popitem(): there are no keys")

    def update(self, entries):
        """Put in a mapping, or pairs."""
        for key, value in entries.items() if hasattr(entries, "items") else entries:
            self.put(key, value)


MutableMapping.register(Shards)
