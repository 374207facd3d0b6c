"""What a topology is made of. Plain frozen values; everything else is a function of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Any

Record = Any
KeyFunction = Callable[[Record], Hashable]

MAIN = "main"
"""The name of an operator's ordinary output; the others are side streams."""

DEAD_LETTERS = "dead letters"
"""The output that gets (record, error) for records an operator could not process."""


class Rule(Enum):
    """How a grouping picks the receiving instance."""

    FORWARD = "forward"  # same index, same worker: the two run fused
    SHUFFLE = "shuffle"
    LOCAL_OR_SHUFFLE = "local or shuffle"
    KEY = "key"
    PARTIAL_KEY = "partial key"
    ALL = "all"
    GLOBAL = "global"
    CUSTOM = "custom"


@dataclass(frozen=True)
class Grouping:
    """The rule of a stream, with its key or picking function where it has one.

    `function` is the key of KEY and PARTIAL_KEY (None: the record is its own key), and for CUSTOM
    picks an instance: `function(record, instances) -> index`.
    """

    rule: Rule
    function: Callable[..., Any] | None = None
    tail: str | None = None
    """How records of a shuffled stream are dealt, `tailrace.tail.modes`; None: as the job says."""

    @property
    def sends_keys(self) -> bool:
        """Whether records go with their keys, for a function gave these."""
        return self.rule in (Rule.KEY, Rule.PARTIAL_KEY) and self.function is not None


class OnError(Enum):
    """What happens to a record whose processing raises."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead letter"


@dataclass(frozen=True)
class Operator:
    """One step. `logic` makes the running thing; to the graph it is opaque."""

    name: str
    logic: Any
    parallelism: int = 1
    is_source: bool = False
    ports: int = 1
    """Number of inputs told apart by the logic; a join has two."""
    outputs: tuple[str, ...] = (MAIN,)
    on_error: OnError = OnError.FAIL
    state_version: int = 0
    """To be raised when what it keeps is not of the same kind any more."""
    migrate: Callable[[Any, Any, int], Any] | None = None
    """(key, value, version) -> value: what was kept by an earlier version, as it is kept now."""


@dataclass(frozen=True)
class Stream:
    """An edge: from an operator's output to a port of another."""

    source: str
    target: str
    grouping: Grouping
    output: str = MAIN
    port: int = 0

    @property
    def label(self) -> str:
        """The stream as people read it."""
        side = "" if self.output == MAIN else f"[{self.output}]"
        return f"{self.source}{side} -> {self.target}"


@dataclass(frozen=True)
class Graph:
    """A whole topology. `validate` says whether it makes sense."""

    name: str
    operators: tuple[Operator, ...]
    streams: tuple[Stream, ...]

    def operator(self, name: str) -> Operator:
        """The operator of that name."""
        for operator in self.operators:
            if operator.name == name:
                return operator
        raise KeyError(f"no operator {name!r}; there are {[o.name for o in self.operators]}")

    def into(self, name: str) -> list[Stream]:
        """The streams that an operator reads."""
        return [stream for stream in self.streams if stream.target == name]

    def out_of(self, name: str) -> list[Stream]:
        """The streams that an operator writes."""
        return [stream for stream in self.streams if stream.source == name]
