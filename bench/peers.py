"""Tailrace beside the systems one would otherwise use from Python, all in one run.

    make bench-peers                     installs the systems first, each into build/peers/NAME
    python bench/peers.py [--quick] [--rounds N] [--out FOLDER]

Systems: Tailrace on local Spark with two workers; two processes with pyzmq between them, 1 and 64
records per message; Bytewax in one process and in two; PyFlink in thread mode; PySpark Structured
Streaming in micro-batches with Python operators. What was tuned stands at the top of each system's
file in `peer_systems/`, and where the best number was not clear, it is tried at the start of the
run. A system that is not installed or fails is named, with the reason, and left out.

Workloads, as in `bench/engine.py`. Word count: 10-word sentences of a 1,000-word vocabulary are
split, every word is counted with keyed state, and the sink gets each word with its count. Chain:
100-byte records, source -> a -> b -> sink. In Tailrace, the pyzmq pipelines and Bytewax with two
processes a hop may cross to the other process (in the first two it always does); in Spark it
crosses to a Python worker and back; in PyFlink to another thread. Bytewax in one process calls one
function after the other; nothing is sent, and that is what its rate there measures.

What a rate is. Sources emit as fast as the system takes it; the rate is what reaches the sinks per
second, after a warm-up and until the sources end.

What a latency is. Sources are open loop: record i is due at start + i / rate, and latency counts
from then until the sink has it. It is counted for every word or record, so a source that is held up
hides nothing. (In Tailrace and the pyzmq pipelines, records that left their source together count
from when the first of them was due, which is never to their favour.) A system whose maximum is
below a rate, or whose source needs twice the time, has no latency there; it is `saturated`.

Exactness. `lost` and `duplicated` sum over all runs. Of every word as many counts must have come as
were emitted, and the last must be right; of the chain's records every number as often as emitted.

Processes are those that do the work: of the systems in environments of their own, all that used at
least 2 % of a run's CPU time.

Noise. Systems take turns, in rounds of changing order. A ratio is that of a system to Tailrace
within one round; reported are the median over the rounds and the range. Spark's runs are six times
as long as the others', since they have only a few micro-batches, and it does not take part in all
rounds; PyFlink's are two and a half times as long, since its jobs begin cold and fill buffers.
`background_cpu_percent` is what other programs used before this one did anything.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.frame import Benchmark, Options, main
from harness.process import PeerError
from peer_systems.contestants import Contestant, contestants
from peer_systems.feed import Order
from peer_systems.report import document, headline, table
from peer_systems.results import FULL_SPEED, RATES_PER_S, WORKLOADS, Results
from peer_systems.told import Measured


@dataclass(frozen=True)
class Plan:
    """How often and for how long."""

    rounds: int
    slow_rounds: int
    """So many of them for systems that do not take part in all."""
    trial_s: float
    rate_s: float
    latency_s: float
    warm_s: float
    """Of each run, but at most a third. Tailrace's workers report every half second; of a run at
    a fixed rate, less would leave nothing out."""


QUICK = Plan(rounds=2, slow_rounds=1, trial_s=0.9, rate_s=1.2, latency_s=1.8, warm_s=0.6)
FULL = Plan(rounds=5, slow_rounds=3, trial_s=2.0, rate_s=4.0, latency_s=6.0, warm_s=1.0)


class Run(Benchmark):
    """One run of the benchmark."""

    name = "peers"
    description = "Tailrace beside Bytewax, PyFlink, Spark micro-batches and pyzmq by hand."
    quick_help = "two short rounds, a few minutes"

    def __init__(self, options: Options, folder: Path, started: float) -> None:
        super().__init__(options, folder, started)
        self._plan = self.plan(QUICK, FULL)
        self._systems = contestants()
        self._results = Results({system.key: system.label for system in self._systems})
        self._runs = 0

    def measure(self) -> None:
        """All rounds."""
        results = self._results
        results.background_cpu_percent = self.background_percent()
        for system in self._systems:
            self.say(f"{system.label}: starting")
            self.ends.callback(system.end)
            self._attempt(system, lambda system: system.start(self.folder))
        for system in self._systems:
            self._attempt(system, self._trials)
        for number in range(self._plan.rounds):
            self.say(f"round {number + 1} of {self._plan.rounds}")
            order = self._systems if number % 2 == 0 else self._systems[::-1]
            for workload in WORKLOADS:
                for rate_per_s in (FULL_SPEED, *RATES_PER_S):
                    for system in order:
                        self._step(system, workload, rate_per_s, number)
            results.rounds += 1

    def _attempt(self, system: Contestant, step: Callable[[Contestant], None]) -> None:
        """Do something with a system; if that fails, go on without it."""
        if system.key in self._results.missing:
            return
        try:
            step(system)
        except (PeerError, RuntimeError, ValueError, OSError) as error:
            reason = str(error).strip().splitlines()[-1] if str(error).strip() else repr(error)
            self._results.missing[system.key] = reason
            self.say(f"{system.label} is left out: {reason}")
            system.end()  # its processes would run beside the others

    def _trials(self, system: Contestant) -> None:
        """Warm up, and find the best tuning of each workload."""
        for workload in WORKLOADS:
            tunings = system.tunings(workload)
            # The first run is a warm-up, unless there is nothing to compare it with.
            for tuning in tunings if len(tunings) == 1 else (tunings[0], *tunings):
                run = self._run(system, workload, FULL_SPEED, self._plan.trial_s, tuning)
                self._results.trials[system.key, workload, tuning] = run

    def _step(self, system: Contestant, workload: str, rate_per_s: int, number: int) -> None:
        if not system.all_rounds and number >= self._plan.slow_rounds:
            return
        if self._results.too_fast(system.key, workload, rate_per_s):
            return

        def step(system: Contestant) -> None:
            seconds = self._plan.latency_s if rate_per_s else self._plan.rate_s
            tuning = self._results.best_tuning(system.key, workload)
            run = self.undisturbed(lambda: self._run(system, workload, rate_per_s, seconds, tuning))
            self._results.add(system.key, workload, rate_per_s, number, run)

        self._attempt(system, step)

    def _run(
        self, system: Contestant, workload: str, rate_per_s: int, seconds: float, tuning: str
    ) -> Measured:
        self._runs += 1
        folder = self.folder / f"run-{self._runs}"
        folder.mkdir()
        order = Order(workload, seconds * system.stretch, rate_per_s, str(folder))
        warm_s = min(self._plan.warm_s, seconds / 3) * system.stretch
        run = system.run(order, warm_s, tuning)
        what = " ".join(filter(None, (workload, tuning)))
        at = f"{rate_per_s:,}/s" if rate_per_s else "full speed"
        p99 = f", p99 {run.latency_ms['p99']:.3g} ms" if run.latency_ms else ""
        self.say(f"{system.label}, {what} at {at}: {run.rate_per_s:,.0f}/s{p99}")
        return run

    def table(self) -> str:
        """Everything that was measured, as text."""
        return table(self._results)

    def headline(self) -> dict[str, Any]:
        """The figures by system and workload."""
        return headline(self._results, self.elapsed_s())

    def document(self, figures: dict[str, Any]) -> dict[str, Any]:
        """Everything for the JSON file."""
        return document(self._results, figures)

    def draw(self, path: Path) -> bool:
        """Write the figure."""
        from peer_systems.figure import draw

        draw(self._results, path)
        return True


if __name__ == "__main__":
    main(Run)
