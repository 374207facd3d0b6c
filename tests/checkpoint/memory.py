"""A folder in memory, for tests of what is written to folders."""

from __future__ import annotations

from typing import Any

from tailrace.checkpoint.errors import MissingError


class Memory:
    """A folder that is a dictionary."""

    url = "memory"

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def write(self, name: str, data: Any) -> None:
        self.files[name] = data if isinstance(data, bytes) else b"".join(data)

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        if name not in self.files:
            raise MissingError(name)
        end = None if length is None else offset + length
        return self.files[name][offset:end]

    def sizes(self, under: str = "", hidden: bool = False) -> dict[str, int]:
        return {name: len(data) for name, data in self.files.items() if name.startswith(under)}

    def names(self, under: str = "") -> list[str]:
        return sorted(self.sizes(under))

    def delete(self, name: str) -> None:
        self.files.pop(name, None)

    def exists(self, name: str) -> bool:
        return name in self.files
