"""The bounds on everything that could grow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The bounds on everything that could grow."""

    window_records: int = 8192
    """The most records of one link that are under way or queued at the receiver."""
    first_window_records: int = 64
    """The same before the receiver has shown how quick it is. It is doubled as long as records are
    processed within 10 ms, and less when they wait for more than 20."""
    window_bytes: int = 16 << 20
    """Bytes of one link between two workers that are under way or queued, as encoded."""
    gathered_records: int = 2048
    """Records gathered for one receiver, above which their producer waits."""
    poll_records: int = 1024
    """The most records taken from a source in one round; fewer while rounds take long."""
    round_messages: int = 64
    """Messages an instance processes in one round."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")


DEFAULT_LIMITS = Limits()
