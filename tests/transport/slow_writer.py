"""A writer that can be halted in the middle of a message, which a `Writer` cannot."""

import ctypes
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

SOURCE = Path(__file__).with_suffix(".c")
HEADERS = Path(__file__).parents[2] / "src/tailrace/transport"


@cache
def library() -> ctypes.CDLL:
    """The ring's own C, compiled once; the file is not needed any more when it is loaded."""
    with tempfile.TemporaryDirectory() as folder:
        built = f"{folder}/slow_writer.so"
        strict = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{HEADERS}"]
        options = [*strict, "-O1", "-shared", "-fPIC", str(SOURCE), "-o", built]
        subprocess.run([os.environ.get("CC", "cc"), *options], check=True)
        loaded = ctypes.CDLL(built)
    slow, length = ctypes.c_void_p, ctypes.c_uint64
    for name, result, arguments in (
        ("open", slow, [ctypes.c_int, ctypes.c_char_p]),
        ("reserve", ctypes.c_bool, [slow, length, ctypes.c_bool]),
        ("fill", None, [slow, ctypes.c_char_p, length]),
        ("commit", ctypes.c_bool, [slow, ctypes.c_uint32]),
        ("abort", None, [slow]),
        ("close", None, [slow]),
    ):
        function = getattr(loaded, f"slow_{name}")
        function.restype, function.argtypes = result, arguments
    return loaded


class SlowWriter:
    """Reserves, and later commits or gives up, one message at a time."""

    def __init__(self, address: str) -> None:
        pid, descriptor, nonce = address.split("/")
        self._c = library()
        fd = os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
        try:
            self._slow = self._c.slow_open(fd, bytes.fromhex(nonce))
        finally:
            os.close(fd)
        assert self._slow, f"no place in ring {address}"
        self._length = 0

    def reserve(self, payload: bytes, *, wait: bool = True) -> bool:
        """Take room for a message and write it there, uncommitted; False: the ring is full."""
        if not self._c.slow_reserve(self._slow, len(payload), wait):
            return False
        self._c.slow_fill(self._slow, payload, len(payload))
        self._length = len(payload)
        return True

    def commit(self) -> bool:
        """Send what was reserved. False: it took so long that the reader skipped it."""
        return bool(self._c.slow_commit(self._slow, self._length))

    def abort(self) -> None:
        """Give it up: the reader passes it by."""
        self._c.slow_abort(self._slow)

    def send(self, payload: bytes, *, wait: bool = True) -> bool:
        """Both steps at once."""
        return self.reserve(payload, wait=wait) and self.commit()

    def close(self) -> None:
        """Give the place up, and what is reserved with it."""
        self._c.slow_close(self._slow)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()
