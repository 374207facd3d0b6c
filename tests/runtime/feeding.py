"""Records for a step, as the guard around it hands them over."""

from collections.abc import Iterable
from typing import Any

from tailrace.runtime.step import Step


def feed(step: Step, records: Iterable[Any], port: int = 0) -> None:
    """Have it process them, with their keys if it asks for these."""
    if port not in step.key_of:
        step.process(iter(records), port)
        return
    key_of = step.key_of[port]
    step.process(
        ((record, record if key_of is None else key_of(record)) for record in records), port
    )
