"""What waiting costs: latency and CPU time by how workers wait, at low and high rates.

    python bench/waiting.py [--quick] [--rounds N] [--out FOLDER]

Word count as in `engine.py`, on a local Spark with two workers, at 100, 1,000 and 10,000 sentences
per second, evenly paced and at the random times of a Poisson process, for each value of
`start(..., waiting=...)`. Beside them the same pipeline by hand: two processes and a pipe, which
sleep in `select`; and Bytewax in two processes, if it is installed (`make bench-peers`). Records,
functions and sinks are the same, arrivals too.

Latency counts from when a sentence was due to the end of the sink's work on its words. CPU is that
of all processes, in cores: 1 is one core all the time. `idle_cpu_percent` is that of both workers,
in percent of one core, while a job has no input.

All take turns, in rounds of changing order; reported are medians over the rounds. `--quick` has one
round of all, and as many of those at 10,000 per second, Poisson, as there is time for. A run from
which the machine's host stole more than 0.5% is repeated while there is time, and counted. On a
machine that others use, spinning is what suffers most: look at `background_cpu_percent` first.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from engine_peers.handmade import Pair, Variant
from harness.arrivals import EVEN, PACINGS, POISSON
from harness.frame import Benchmark, Options, machine, main
from harness.process import PeerError
from harness.spread import rounded
from peer_systems.contestants import Bytewax
from peer_systems.feed import Order

if TYPE_CHECKING:
    pass

STRATEGIES = ("balanced", "spin", "sleep")
HANDMADE, BYTEWAX = "handmade", "bytewax"
BY_HAND = Variant("wordcount", "both", "pipe", 64)
RATES = {100: "100", 1_000: "1k", 10_000: "10k"}


@dataclass(frozen=True)
class Plan:
    """What to measure and for how long."""

    rounds: int
    seconds: float
    warm_s: float  # workers report every half second; less would leave nothing out
    idle_s: float
    budget_s: float


QUICK = Plan(rounds=1, seconds=1.5, warm_s=0.6, idle_s=2.0, budget_s=84.0)
FULL = Plan(rounds=5, seconds=4.0, warm_s=0.6, idle_s=5.0, budget_s=3_600.0)


@dataclass(frozen=True)
class Found:
    """One run."""

    p50_ms: float
    p99_ms: float
    cpu_cores: float
    lost: int
    duplicated: int


Point = tuple[str, int, str]
"""Who, at which rate, in which pacing."""


class Run(Benchmark):
    """One run of the benchmark."""

    name = "waiting"
    description = "Latency and CPU time by how workers wait."
    quick_help = "one round of all, more of what matters most, within 100 s"

    def __init__(self, options: Options, folder: Path, started: float) -> None:
        super().__init__(options, folder, started)
        self._plan = self.plan(QUICK, FULL)
        self._found: dict[Point, list[Found]] = {}
        self._discarded: list[Found] = []
        self._bytewax: Bytewax | None = None
        self._runs = 0
        self._idle_percent = 0.0
        self._background_percent = 0.0

    def measure(self) -> None:
        """All rounds, or as much of them as there is time for."""
        plan = self._plan
        self._background_percent = self.background_percent()
        self.say("starting Spark")
        from engine_peers.on_tailrace import OnSpark

        self._spark: OnSpark = OnSpark(self.folder)
        self.ends.callback(self._spark.end)
        self._pair = Pair(self.folder)
        self.ends.callback(self._pair.end)
        self._start_bytewax()
        self.say("a job without input")
        self._idle_percent = self._spark.idle_cpu_percent(plan.idle_s)
        self._spark.run("wordcount", 0.5, 0, 0)
        number = 0
        while number < plan.rounds and self._round(self._points(PACINGS, tuple(RATES)), number):
            number += 1
        while self.options.quick and self.elapsed_s() < plan.budget_s:
            number += 1
            self._round(self._points((POISSON,), (10_000,), STRATEGIES), number)

    def _start_bytewax(self) -> None:
        bytewax = Bytewax(2)
        self.ends.callback(bytewax.end)
        try:
            bytewax.start(self.folder)
        except PeerError as error:
            self.say(f"without Bytewax: {error}")
        else:
            self._bytewax = bytewax

    def _points(
        self, pacings: tuple[str, ...], rates: tuple[int, ...], who: tuple[str, ...] = ()
    ) -> list[Point]:
        others = (HANDMADE, BYTEWAX) if self._bytewax else (HANDMADE,)
        # The most telling ones first: there may be no time for all.
        return [
            (name, rate, pacing)
            for rate in sorted(rates, reverse=True)
            for pacing in sorted(pacings, reverse=True)
            for name in who or (*STRATEGIES, *others)
        ]

    def _round(self, points: list[Point], number: int) -> bool:
        for point in points if number % 2 == 0 else reversed(points):
            if self.elapsed_s() > self._plan.budget_s:
                self.say(f"no time for the rest of round {number + 1}")
                return False
            name, rate, pacing = point
            self.say(f"{name} at {rate:,}/s, {pacing}")
            step: Callable[[], Found] = partial(self._tailrace, name, rate, pacing)
            if name == HANDMADE:
                step = partial(self._handmade, rate, pacing)
            elif name == BYTEWAX:
                step = partial(self._by_bytewax, rate, pacing)
            found = self.undisturbed(step, self._discarded.append, self._plan.budget_s)
            self._found.setdefault(point, []).append(found)
        return True

    def _tailrace(self, waiting: str, rate: int, pacing: str) -> Found:
        plan = self._plan
        outcome = self._spark.run(
            "wordcount", plan.seconds, rate, plan.warm_s, pacing, waiting=waiting
        )
        ms = outcome.latency_ms
        cores = outcome.cpu_us * rate / 1e6
        return Found(ms["p50"], ms["p99"], cores, outcome.lost, outcome.duplicated)

    def _handmade(self, rate: int, pacing: str) -> Found:
        plan = self._plan
        outcome = self._pair.run(BY_HAND, plan.seconds, rate, plan.warm_s, pacing)
        ms = outcome.latency_ms
        return Found(ms["p50"], ms["p99"], outcome.cpu_us * rate / 1e6, 0, 0)

    def _by_bytewax(self, rate: int, pacing: str) -> Found:
        assert self._bytewax is not None
        self._runs += 1
        folder = self.folder / f"bytewax-run-{self._runs}"
        folder.mkdir()
        plan = self._plan
        order = Order("wordcount", plan.seconds, rate, str(folder), pacing)
        run = self._bytewax.run(order, plan.warm_s, "64")
        ms = run.latency_ms
        return Found(ms["p50"], ms["p99"], run.cpu_s / plan.seconds, 0, 0)

    def _median(self, name: str, rate: int, pacing: str, figure: str) -> float | None:
        found = self._found.get((name, rate, pacing), [])
        return rounded(median(getattr(one, figure) for one in found)) if found else None

    def table(self) -> str:
        """Everything that was measured, as text."""
        lines = [
            "",
            f"{'':12}{'per second':>12}{'pacing':>10}{'p50 ms':>12}{'p99 ms':>12}{'cores':>10}",
        ]
        for name, rate, pacing in sorted(self._found, key=lambda point: (point[1:], point[0])):
            cells = [
                self._median(name, rate, pacing, figure)
                for figure in ("p50_ms", "p99_ms", "cpu_cores")
            ]
            lines.append(
                f"{name:12}{rate:>12,}{pacing:>10}{cells[0]:>12}{cells[1]:>12}{cells[2]:>10}"
            )
        return "\n".join([*lines, ""])

    def headline(self) -> dict[str, Any]:
        """Poisson's figures by strategy and rate, even ones with `even` in their names."""
        figures: dict[str, Any] = {}
        for name in (*STRATEGIES, HANDMADE, BYTEWAX):
            for rate, short in RATES.items():
                for pacing in PACINGS:
                    infix = "even_" if pacing == EVEN else ""
                    for figure in ("cpu_cores", "p50_ms", "p99_ms"):
                        value = self._median(name, rate, pacing, figure)
                        figures[f"{name}_{short}_{infix}{figure}"] = value
        every = [one for found in self._found.values() for one in found] + self._discarded
        figures["lost"] = sum(one.lost for one in every)
        figures["duplicated"] = sum(one.duplicated for one in every)
        figures["idle_cpu_percent"] = rounded(self._idle_percent)
        figures["background_cpu_percent"] = rounded(self._background_percent)
        figures["elapsed_s"] = rounded(self.elapsed_s())
        return figures

    def document(self, figures: dict[str, Any]) -> dict[str, Any]:
        """Everything for the JSON file."""
        runs = [
            {"who": name, "rate_per_s": rate, "pacing": pacing, "runs": [asdict(o) for o in found]}
            for (name, rate, pacing), found in self._found.items()
        ]
        return {"headline": figures, "machine": machine(), "runs": runs}


if __name__ == "__main__":
    main(Run)
