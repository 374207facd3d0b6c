"""Memory that is freed stays with the process: streams need it again at once.

The C library gives large blocks, and what is free at the end of its heap, back to the system; the
next large frame then costs hundreds of page faults, as much time as its way over the network. What
stays is bounded: blocks above 32 MB still go back at once, and a free end above 64 MB does.
"""

from __future__ import annotations

import ctypes
from functools import cache

KEPT_BYTES = 64 << 20
_LARGEST_BYTES = 32 << 20  # the most that glibc accepts
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


@cache
def keep_freed_memory() -> bool:
    """Have this process do so from now on; False where the C library is not glibc."""
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(
        set_option(_M_TRIM_THRESHOLD, KEPT_BYTES) and set_option(_M_MMAP_THRESHOLD, _LARGEST_BYTES)
    )
