"""What it costs a job to be changed while it runs.

    python bench/change.py [--quick] [--rounds N] [--out FOLDER]

Counts by key, 1,000,000 keys with state, 10,000 records/s over all of them (Poisson) which go on
being due whatever happens; local Spark, two workers and slots for two more. While that runs it is
changed, there and back:

`half_the_keys`: half of the slots of either instance become the other's, in another worker.
`one_instance_to_another_worker`: with its half of the keys.
`rescale_2_3_2`: one instance more, then one less.
`workers_2_3_2`: a further worker starts and gets an instance; then it is emptied and leaves.
`one_percent_by_table`: a table sends 10,000 single keys to the other instance.

The sink notes when each result was there; latency counts from when its record was due.
`p99_during_over_steady`: p99 of the records that were under way between asking for a change and its
end, over that of as long a while right behind it (0.75 to 1 s); the median over all changes of
a kind. `longest_silence_ms` is the longest time without any result meanwhile, the median over them,
`longest_silence_steady_ms` that of the while behind it. The same for a job that makes a checkpoint
every second: `with_checkpoints`.

`restart_silence_ms`: from the last result before to the first after the same job was stopped with a
savepoint and started anew from that, which is how others change a job. `moved_keys_per_s` is while
half of the keys move. `lost`, `duplicated`: the count of each key against the records that were
sent, over both jobs and the restart.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from change_parts.jobs import CHANGES, Changed, Changing, Found
from change_parts.windows import Window, percentile
from harness.frame import Benchmark, Options, machine, main
from harness.spread import Spread, limits, middle, rounded
from recovery_parts.jobs import made
from tailrace.spark.session import local_spark

KEYS = 1_000_000
SLOTS = 4
_NO_REPEATS_AFTER_S = 70.0
_LONGEST_S = 120.0
"""Records for so long there are, for each job and round."""


@dataclass(frozen=True)
class Plan:
    """How often each change is made, there and back."""

    rounds: int


@dataclass
class Side:
    """One job: all changes of it, and what came of them."""

    changes: dict[str, list[Changed]]
    found: Found

    def ratios(self, name: str, percent: float = 99) -> list[float]:
        """The percentile during each change over that of the while behind it."""
        return [
            self._of(one.during, percent) / self._of(one.steady, percent)
            for one in self.changes[name]
        ]

    def _of(self, window: Window, percent: float) -> float:
        return percentile(self.found.results.latencies_ns(window), percent)

    def ms(self, name: str, percent: float, when: str = "during") -> Spread:
        """A percentile during changes, or in the whiles behind them."""
        windows = [getattr(one, when) for one in self.changes[name]]
        return Spread.of([self._of(window, percent) / 1e6 for window in windows])

    def took_ms(self, name: str) -> Spread:
        """From asking for changes to their ends."""
        return Spread.of([one.during.length_ns / 1e6 for one in self.changes[name]])

    def silence_ms(self, name: str, when: str = "during") -> Spread:
        """The longest times without a result."""
        silence_ns = self.found.results.longest_silence_ns
        return Spread.of([silence_ns(getattr(one, when)) / 1e6 for one in self.changes[name]])

    def figures(self) -> dict[str, Any]:
        """All of them, each by the kind of change."""

        def each(figure: Callable[[str], Any]) -> dict[str, Any]:
            return {name: figure(name) for name in self.changes}

        return {
            "p99_during_over_steady": each(lambda name: middle(Spread.of(self.ratios(name)))),
            "p99_ratio_range": each(lambda name: limits(Spread.of(self.ratios(name)))),
            "p99_during_ms": each(lambda name: middle(self.ms(name, 99))),
            "p99_steady_ms": each(lambda name: middle(self.ms(name, 99, "steady"))),
            "longest_silence_ms": each(lambda name: middle(self.silence_ms(name))),
            "longest_silence_steady_ms": each(lambda name: middle(self.silence_ms(name, "steady"))),
            "took_ms": each(lambda name: middle(self.took_ms(name))),
        }

    @property
    def moved_keys_per_s(self) -> float:
        """While half of the keys moved."""
        some = self.changes["half_the_keys"]
        return sum(one.moved_keys for one in some) / sum(one.moved_s for one in some)


class Run(Benchmark):
    """One run of the benchmark."""

    name = "change"
    description = "What it costs a job to be changed while it runs."
    quick_help = "each change once there and back, in both jobs; within 100 s"

    def __init__(self, options: Options, folder: Path, started: float) -> None:
        super().__init__(options, folder, started)
        self._plan = self.plan(Plan(1), Plan(5))
        self._sides: dict[bool, Side] = {}
        self._restart_ms: float | None = None
        self._background_percent = 0.0

    def measure(self) -> None:
        """One job after the other: they would disturb each other."""
        self._background_percent = self.background_percent()
        self.say("starting Spark")
        spark = local_spark(SLOTS)
        self.ends.callback(spark.stop)
        for checkpoints in (False, True):
            self._measure(spark, checkpoints)

    def _measure(self, spark: Any, checkpoints: bool) -> None:
        self.say(f"a job {'with' if checkpoints else 'without'} checkpoints")
        name = "with" if checkpoints else "without"
        arrivals = made(self.folder / f"due-{name}", KEYS, _LONGEST_S * self._plan.rounds, KEYS)
        with Changing(spark, self.folder / name, arrivals, checkpoints=checkpoints) as job:
            job.fill()
            changes: dict[str, list[Changed]] = {change: [] for change in CHANGES}
            for _ in range(self._plan.rounds):
                for change, make in CHANGES.items():
                    self.say(change)
                    changes[change] += self._undisturbed(partial(make, job))
            restart = None
            if checkpoints:
                self.say("the same by a restart")
                restart = job.restart()
            found = job.end()
        self._sides[checkpoints] = Side(changes, found)
        if restart is not None:
            self._restart_ms = found.results.longest_silence_ns(restart) / 1e6

    def _undisturbed(self, step: Callable[[], list[Changed]]) -> list[Changed]:
        until_s = _NO_REPEATS_AFTER_S if self.options.quick else float("inf")
        return self.undisturbed(step, until_s=until_s)

    # ---- what was found ----

    def headline(self) -> dict[str, Any]:
        """All figures."""
        sides = self._sides
        return {
            **sides[False].figures(),
            "with_checkpoints": sides[True].figures(),
            "restart_silence_ms": rounded(self._restart_ms),
            "moved_keys_per_s": rounded(sides[False].moved_keys_per_s),
            "moved_keys_per_s_with_checkpoints": rounded(sides[True].moved_keys_per_s),
            "lost": sum(side.found.lost for side in sides.values()),
            "duplicated": sum(side.found.duplicated for side in sides.values()),
            "background_cpu_percent": rounded(self._background_percent),
            "seconds": round(self.elapsed_s(), 1),
        }

    def table(self) -> str:
        """The same for people."""
        lines = []
        for checkpoints, side in self._sides.items():
            lines += ["", "with checkpoints" if checkpoints else "without checkpoints"]
            heads = ("p99 ratio", "p99 ms", "steady", "max ms", "silence ms", "steady")
            lines.append(f"{'':32}" + "".join(f"{head:>26}" for head in heads))
            for name in side.changes:
                cells = (
                    Spread.of(side.ratios(name)),
                    side.ms(name, 99),
                    side.ms(name, 99, "steady"),
                    side.ms(name, 100),
                    side.silence_ms(name),
                    side.silence_ms(name, "steady"),
                )
                lines.append(f"{name:32}" + "".join(f"{cell!s:>26}" for cell in cells))
        return "\n".join([*lines, ""])

    def document(self, figures: dict[str, Any]) -> dict[str, Any]:
        """Everything for the JSON file."""
        return {
            "headline": figures,
            "machine": machine(),
            "changes": {
                "with" if checkpoints else "without": {
                    name: [
                        {
                            "took_ms": one.during.length_ns / 1e6,
                            "moved_keys": one.moved_keys,
                            "moved_s": one.moved_s,
                        }
                        for one in some
                    ]
                    for name, some in side.changes.items()
                }
                for checkpoints, side in self._sides.items()
            },
        }


if __name__ == "__main__":
    main(Run)
