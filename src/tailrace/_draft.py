"""What a topology consists of while it is being written: operators by name, and streams."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from tailrace.graph.model import DEAD_LETTERS, Grouping, OnError, Operator, Rule, Stream
from tailrace.graph.validate import TopologyError, whole_parallelism
from tailrace.spark.shippable import check_ships


class End(NamedTuple):
    """Where a stream begins: an operator, and which of its outputs; and how it is regrouped."""

    operator: str
    output: str
    grouping: Grouping | None = None


class Draft:
    """Operators and the streams between them, in the order in which they were added.

    What can be seen to be wrong with an operator by itself is refused when it is added; whether
    the whole makes sense is for `graph.validate` to say.
    """

    def __init__(self) -> None:
        self.operators: dict[str, Operator] = {}
        self.streams: list[Stream] = []

    def free_name(self, wanted: str) -> str:
        """`wanted`, or `wanted 2` and so on, for operators that were given no name."""
        name, number = wanted, 1
        while name in self.operators:
            number += 1
            name = f"{wanted} {number}"
        return name

    def add(self, operator: Operator, inputs: Iterable[Iterable[End]]) -> None:
        """An operator, and what it reads at each of its ports.

        Without a grouping, records stay in their instance if there are as many before as behind,
        and are shuffled otherwise.
        """
        name = operator.name
        if name in self.operators:
            raise TopologyError(
                f"there is an operator {name!r} already; give each a name of its own"
            )
        parallelism = whole_parallelism(name, operator.parallelism)
        streams = []
        for port, ends in enumerate(inputs):
            for source, output, grouping in ends:
                if grouping is not None and grouping.function is not None:
                    check_ships(f"the grouping function before {name!r}", grouping.function)
                if grouping and grouping.rule is Rule.GLOBAL and parallelism != 1:
                    raise TopologyError(
                        f"parallelism of {name!r} is {parallelism}, but gather() before it brings"
                        " all records to one instance; leave it out, or use another grouping"
                    )
                same = self.operators[source].parallelism == parallelism
                default = Grouping(Rule.FORWARD if same else Rule.SHUFFLE)
                streams.append(Stream(source, name, grouping or default, output, port))
        self.operators[name] = replace(operator, parallelism=parallelism)
        self.streams += streams
        if operator.on_error is OnError.DEAD_LETTER:
            self.add_output(name, DEAD_LETTERS)

    def add_output(self, operator: str, output: str) -> None:
        """Let an operator have this output, if it does not have it yet."""
        found = self.operators[operator]
        if output not in found.outputs:
            self.operators[operator] = replace(found, outputs=(*found.outputs, output))

    def dead_letters(self, operator: str) -> End:
        """The output for records that an operator could not process."""
        found = self.operators.get(operator)
        if found is None:
            raise TopologyError(f"there is no operator {operator!r}; there are {[*self.operators]}")
        if found.on_error is not OnError.DEAD_LETTER:
            raise TopologyError(
                f"{operator!r} has no dead letters: its on_error is {found.on_error.value!r};"
                " make it 'dead letter'"
            )
        return End(operator, DEAD_LETTERS)
