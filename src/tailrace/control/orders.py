"""What is decided is told: orders, each an addressee and a message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tailrace.control.protocol import Message

ALL = None
"""The addressee of what everybody is told, copies of workers included."""


@dataclass(frozen=True)
class Line:
    """An addressee who has no rank, or not any more: whoever is at the end of a connection."""

    number: int


Order = tuple[int | Line | None, Message]
"""Whom to tell what: a rank, a line, or ALL."""
Decision = Callable[[], list[Order]]
