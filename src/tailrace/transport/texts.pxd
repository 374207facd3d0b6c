cdef object text_of(const char *at, Py_ssize_t size)
cdef object one_object(object record)
