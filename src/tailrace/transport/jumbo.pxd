cdef inline bint is_run(tuple item) noexcept:
    """Whether these are records, with or without their keys; all other tuples are objects."""
    return len(item) == 3 or (len(item) == 4 and type(item[3]) is list)
