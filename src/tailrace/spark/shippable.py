"""What can be shipped to the workers, by what Spark ships with, and what is in the way."""

from __future__ import annotations

import inspect
from typing import Any

from tailrace.graph.validate import TopologyError


def check_ships(what: str, thing: Any) -> None:
    """Raise if `thing` cannot be shipped to a worker, with the name of the variable at fault."""
    cause = _refusal(thing)
    if cause is not None:
        raise TopologyError(
            f"{what} cannot be shipped to the workers{_culprit(thing)}: {cause}."
            " Create such things in the worker: in the open method of an operator, source or sink"
        ) from cause


def _refusal(thing: Any) -> Exception | None:
    # Not above: whoever imports tailrace must not import pyspark yet, see `spark/daemon.py`.
    from pyspark import cloudpickle

    try:
        cloudpickle.dumps(thing)
    except Exception as error:
        return error
    return None


def _culprit(thing: Any, depth: int = 4) -> str:
    """The innermost variable or attribute that cannot be shipped, as part of a sentence."""
    if inspect.isfunction(thing):
        captured = inspect.getclosurevars(thing)
        kind, parts = "captured variable", {**captured.nonlocals, **captured.globals}
    else:
        kind, parts = "attribute", getattr(thing, "__dict__", {})
    for name, value in parts.items():
        if depth and _refusal(value) is not None:
            inner = _culprit(value, depth - 1)
            return inner or f" because of the {kind} {name!r} ({type(value).__name__})"
    return ""
