from tailrace.transport.ring.native cimport doorbell


cdef class Doorbell:
    cdef doorbell bell
    cdef unsigned born


cdef doorbell *audible(Doorbell self) except NULL
