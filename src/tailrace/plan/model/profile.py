"""What operators cost and do: time and memory per record, record sizes, selectivities."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tailrace.graph.model import DEAD_LETTERS, MAIN, Stream
from tailrace.plan.model.machine import Jumbo


def input_key(stream: Stream) -> str:
    """What a profile calls an input: the producer, and its output if it is not the main one."""
    return stream.source if stream.output == MAIN else f"{stream.source}[{stream.output}]"


def stream_key(stream: Stream) -> str:
    """What a profile calls a stream: as people read it, and the port if it is not the first."""
    return stream.label if stream.port == 0 else f"{stream.label}, port {stream.port}"


@dataclass(frozen=True)
class Work:
    """What one record of input takes and makes."""

    execute_ns: float
    """The time that the model counts with: the median, unless another percentile was chosen."""
    selectivity: Mapping[str, float] = field(default_factory=dict)
    """Records out per record in, by output. What is not named has 1, dead letters 0."""
    memory_bytes: float = 0.0
    """Read from and written to memory."""
    percentiles_ns: Mapping[int, float] = field(default_factory=dict)
    """The spread of the time, as far as it was measured: percentile -> time."""

    def records(self, output: str) -> float:
        """Records that leave by an output for each record of input."""
        return self.selectivity.get(output, 0.0 if output == DEAD_LETTERS else 1.0)


@dataclass(frozen=True)
class OperatorProfile:
    """An operator: its work for a record, where that depends on the input also by input.

    A source's input is what it emits: `execute_ns` is per emitted record.
    """

    work: Work
    record_bytes: Mapping[str, float] = field(default_factory=dict)
    """The size of a record, by output. An output that is not named has `DEFAULT_RECORD_BYTES`."""
    by_input: Mapping[str, Work] = field(default_factory=dict)
    """For inputs, by their `input_key`, whose work differs from `work`."""
    jumbos: Mapping[str, Jumbo] = field(default_factory=dict)
    """How records travel, by `stream_key`, where it was measured; the machine's costs say it
    else."""
    deal_ns: Mapping[str, float] = field(default_factory=dict)
    """What it takes to pick the receiver of a record by what that is, be it the only one, by
    `stream_key`."""

    def work_for(self, input_: str | None) -> Work:
        """The work for a record of an input; None for what a source emits."""
        return self.work if input_ is None else self.by_input.get(input_, self.work)

    def bytes_of(self, output: str) -> float:
        """The size of a record of an output."""
        return self.record_bytes.get(output, DEFAULT_RECORD_BYTES)


DEFAULT_RECORD_BYTES = 100.0


@dataclass(frozen=True)
class Profile:
    """The profiles of a topology's operators, by name."""

    operators: Mapping[str, OperatorProfile]
    note: str = ""
    """Where it comes from."""
    yardstick_ns: float = 0.0
    """The speed that the times are for, by `planner.yardstick`; 0: not known."""

    def of(self, operator: str) -> OperatorProfile:
        """The profile of an operator."""
        if operator not in self.operators:
            raise KeyError(
                f"the profile has no operator {operator!r}; it has {list(self.operators)}"
            )
        return self.operators[operator]

    def at(self, percentile: int) -> Profile:
        """The same with every time taken at that percentile, where it was measured."""

        def work(values: Work) -> Work:
            ns = values.percentiles_ns.get(percentile, values.execute_ns)
            return replace(values, execute_ns=ns)

        return replace(
            self,
            operators={
                name: _with_works(profile, work) for name, profile in self.operators.items()
            },
        )

    def at_speed(self, yardstick_ns: float) -> Profile:
        """The same for cores of another speed, if both speeds are known (not 0)."""
        if not self.yardstick_ns or not yardstick_ns or self.yardstick_ns == yardstick_ns:
            return self
        factor = yardstick_ns / self.yardstick_ns

        def scaled(times_ns: Mapping[Any, float]) -> dict[Any, float]:
            return {key: ns * factor for key, ns in times_ns.items()}

        def work(values: Work) -> Work:
            return replace(
                values,
                execute_ns=values.execute_ns * factor,
                percentiles_ns=scaled(values.percentiles_ns),
            )

        def jumbo(values: Jumbo) -> Jumbo:
            return Jumbo(values.encode_ns * factor, values.decode_ns * factor, values.records)

        return replace(
            self,
            operators={
                name: replace(
                    _with_works(profile, work),
                    jumbos={key: jumbo(values) for key, values in profile.jumbos.items()},
                    deal_ns=scaled(profile.deal_ns),
                )
                for name, profile in self.operators.items()
            },
            yardstick_ns=yardstick_ns,
        )

    def save(self, path: Path | str) -> None:
        """Write as JSON that people can read and edit."""
        Path(path).write_text(json.dumps(profile_to_json(self), indent=2) + "\n")

    @staticmethod
    def load(path: Path | str) -> Profile:
        """Read what `save` wrote."""
        return profile_from_json(json.loads(Path(path).read_text()))


def _with_works(profile: OperatorProfile, work: Callable[[Work], Work]) -> OperatorProfile:
    return replace(
        profile,
        work=work(profile.work),
        by_input={key: work(values) for key, values in profile.by_input.items()},
    )


def profile_to_json(profile: Profile) -> dict[str, Any]:
    """The profile as plain JSON values."""
    return asdict(profile)


def profile_from_json(saved: Mapping[str, Any]) -> Profile:
    """The profile that `profile_to_json` made them of."""

    def work(values: Mapping[str, Any]) -> Work:
        percentiles = {int(key): ns for key, ns in values.get("percentiles_ns", {}).items()}
        return Work(**{**values, "percentiles_ns": percentiles})

    return Profile(
        {
            name: OperatorProfile(
                work(values["work"]),
                values.get("record_bytes", {}),
                {key: work(inner) for key, inner in values.get("by_input", {}).items()},
                {key: Jumbo(**inner) for key, inner in values.get("jumbos", {}).items()},
                values.get("deal_ns", {}),
            )
            for name, values in saved["operators"].items()
        },
        saved.get("note", ""),
        saved.get("yardstick_ns", 0.0),
    )
