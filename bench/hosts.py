"""Rate and latency between hosts, beside the same inside one, and beside TCP and pyzmq by hand.

    python bench/hosts.py [--quick] [--rounds N] [--out FOLDER]

Hosts are network namespaces of this machine, each with its own address, loopback, host name and
shared memory (`hosts_parts/namespaces.py`); they share its cores. Where that is not allowed, one
line says so, and so does the JSON. Workloads, sources, sinks and the audit are those of
`engine.py`: word count with a source and a counter in each worker, and a chain whose every hop
crosses.

- ring: two workers on one host. tcp: one on each of two hosts; `3 hosts`: of three.
- handmade tcp: a socket with lengths in front of pickles; zmq tcp: PUSH and PULL. Each in two
  processes on two hosts, with 1, 64 and 512 records per message; all are tried once, and the best
  of each takes turns with Tailrace.

With `--quick` the workers are processes that this benchmark starts on the hosts, with a coordinator
on a host of its own: the same worker, without Spark around it. Otherwise each arrangement is a
standalone Spark cluster, and the workers are its tasks; the headline says which (`workers`).

Latency counts from when a record was due, at 10,000 sentences per second, with Poisson and with
even arrivals; the headline's is Poisson's. Rounds from which the machine's host stole time are
repeated. The namespaces have one clock, so these latencies are exact.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from engine_peers.handmade import Variant
from engine_peers.workloads import Outcome
from harness.arrivals import EVEN, PACINGS, POISSON
from harness.frame import Benchmark, Options, machine, main
from harness.spread import Spread, cell, limits, middle, spread_of
from hosts_parts.bare import RING, TCP, TCP_3, WHERE, Bare, variants
from hosts_parts.clusters import Clusters
from hosts_parts.namespaces import Hosts, allowed

_RATE = 10_000
_WIRES = ("tcp", "zmq tcp")
_NAMES = {RING: "ring", TCP: "tcp", TCP_3: "tcp_3_hosts", "hand": "handmade_tcp", "zmq": "zmq_tcp"}
_UNIT = {"chain": "records", "wordcount": "sentences"}


@dataclass(frozen=True)
class Plan:
    """What to measure and for how long."""

    rounds: int
    rate_s: float
    rate_warm_s: float
    latency_s: float
    latency_warm_s: float
    trial_s: float
    budget_s: float


QUICK = Plan(4, 0.9, 0.3, 1.6, 0.6, 0.35, budget_s=84.0)
FULL = Plan(7, 3.0, 0.5, 4.0, 1.0, 1.0, budget_s=3_600.0)


class Engine(Protocol):
    """Whoever runs the workloads on Tailrace."""

    def run(
        self,
        workload: str,
        where: str,
        seconds: float,
        rate_per_s: float,
        warm_s: float,
        pacing: str = EVEN,
    ) -> Outcome:
        """Run one."""
        ...


class Run(Benchmark):
    """One run of the benchmark."""

    name = "hosts"
    description = "Tailrace between hosts, beside one host, and beside TCP and pyzmq by hand."
    quick_help = "short rounds without Spark, within 100 s"

    def __init__(self, options: Options, folder: Path, started: float) -> None:
        super().__init__(options, folder, started)
        self._plan = self.plan(QUICK, FULL)
        self._refused = ""
        self._background_percent = 0.0
        self._found: dict[tuple[str, str, str], list[Outcome]] = defaultdict(list)
        """By workload, contestant, and pacing ("" is unpaced)."""
        self._audited: list[Outcome] = []

    def measure(self) -> None:
        """Do all of the plan, or as much as there is time for."""
        self._background_percent = self.background_percent()
        self._refused = allowed()
        if self._refused:
            return
        hosts = self.ends.enter_context(Hosts(4))
        bare = Bare(hosts, self.folder)
        self.ends.callback(bare.end)
        engine: Engine = bare
        if not self.options.quick:
            self.say("starting three Spark clusters")
            clusters = Clusters(self.folder)
            self.ends.callback(clusters.end)
            engine = clusters
        best = self._trials(bare)
        for workload in _UNIT:
            for where in WHERE:
                engine.run(workload, where, self._plan.rate_warm_s, 0, 0)
        round_s = 0.0
        for number in range(self._plan.rounds):
            begun_s = self.elapsed_s()
            if begun_s + round_s / 2 > self._plan.budget_s:
                self.say(f"no time for round {number + 1} of {self._plan.rounds}")
                break
            self.say(f"round {number + 1} of {self._plan.rounds}")
            self._round(engine, bare, best, number)
            round_s = self.elapsed_s() - begun_s

    def _trials(self, bare: Bare) -> dict[tuple[str, str], Variant]:
        """Try every handmade variant once; the best of each workload and wire."""
        self.say("handmade pipelines, each once")
        best: dict[tuple[str, str], tuple[float, Variant]] = {}
        for variant in variants(_WIRES):
            trial_s = self._plan.trial_s
            outcome = bare.run_handmade(variant, trial_s, 0, trial_s / 3)
            group = variant.workload, "zmq" if variant.transport == "zmq tcp" else "hand"
            if group not in best or best[group][0] < outcome.rate_per_s:
                best[group] = outcome.rate_per_s, variant
        return {group: variant for group, (_, variant) in best.items()}

    def _round(
        self, engine: Engine, bare: Bare, best: dict[tuple[str, str], Variant], number: int
    ) -> None:
        plan = self._plan
        steps: list[Callable[[], None]] = []
        for workload in _UNIT:
            for where in WHERE:
                rate = partial(engine.run, workload, where, plan.rate_s, 0, plan.rate_warm_s)
                steps.append(partial(self._step, (workload, where, ""), rate))
            for who in ("hand", "zmq"):
                hand = partial(bare.run_handmade, best[workload, who], plan.rate_s, 0)
                steps.append(
                    partial(self._step, (workload, who, ""), partial(hand, plan.rate_warm_s))
                )
        times = plan.latency_s, _RATE, plan.latency_warm_s
        for pacing in PACINGS:
            for where in (RING, TCP):
                paced = partial(engine.run, "wordcount", where, *times, pacing)
                steps.append(partial(self._step, ("wordcount", where, pacing), paced))
        for who in ("hand", "zmq"):
            paced = partial(bare.run_handmade, best["wordcount", who], *times, POISSON)
            steps.append(partial(self._step, ("wordcount", who, POISSON), paced))
        if number % 2 == 0:
            for where in (RING, TCP, TCP_3):
                paced = partial(engine.run, "chain", where, *times, POISSON)
                steps.append(partial(self._step, ("chain", where, POISSON), paced))
        for step in steps if number % 2 == 0 else reversed(steps):
            if self.elapsed_s() > plan.budget_s and number:
                self.say(f"no time for the rest of round {number + 1}")
                return
            step()

    def _step(self, key: tuple[str, str, str], step: Callable[[], Outcome]) -> None:
        outcome = self.undisturbed(step, self._audited.append, self._plan.budget_s)
        self._found[key].append(outcome)
        self._audited.append(outcome)

    def _rate(self, workload: str, who: str) -> Spread | None:
        return spread_of([outcome.rate_per_s for outcome in self._found[workload, who, ""]])

    def _latency(self, workload: str, who: str, pacing: str, name: str) -> Spread | None:
        return spread_of(
            [outcome.latency_ms[name] for outcome in self._found[workload, who, pacing]]
        )

    def table(self) -> str:
        """Everything that was measured, as text."""
        if self._refused:
            return f"no hosts to measure between: {self._refused}"
        lines = ["", f"{'per second':34}{'median (lowest..highest)':>34}"]
        for workload, unit in _UNIT.items():
            for who, name in _NAMES.items():
                rate = cell(self._rate(workload, who))
                lines.append(f"{workload + ', ' + name:34}{rate:>34} {unit}")
        lines += ["", f"{'ms at 10,000/s':44}{'p50':>26}{'p99':>26}"]
        for workload, who, pacing in sorted(key for key in self._found if key[2]):
            both = [cell(self._latency(workload, who, pacing, name)) for name in ("p50", "p99")]
            label = f"{workload}, {_NAMES[who]}, {pacing} arrivals"
            lines.append(f"{label:44}{both[0]:>26}{both[1]:>26}")
        return "\n".join([*lines, ""])

    def headline(self) -> dict[str, Any]:
        """The figures that matter most."""
        figures: dict[str, Any] = {"allowed": not self._refused}
        if self._refused:
            return {**figures, "reason": self._refused}
        figures["workers"] = (
            "as processes, without Spark" if self.options.quick else "tasks of standalone Spark"
        )
        for workload, unit in _UNIT.items():
            for who, name in _NAMES.items():
                figures[f"{workload}_{name}_{unit}_per_s"] = middle(self._rate(workload, who))
        for workload, who, pacing in sorted(key for key in self._found if key[2]):
            even = "_even" if pacing == EVEN else ""
            for name in ("p50", "p99"):
                label = f"{workload}_10k_{_NAMES[who]}{even}_{name}_ms"
                figures[label] = middle(self._latency(workload, who, pacing, name))
        tcp, ring = (self._latency("wordcount", who, POISSON, "p99") for who in (TCP, RING))
        if tcp is not None and ring is not None:
            figures["p99_tcp_over_ring"] = round(tcp.median / ring.median, 3)
        chain, zmq = self._rate("chain", TCP), self._rate("chain", "zmq")
        if chain is not None and zmq is not None:
            figures["chain_tcp_over_zmq"] = round(chain.median / zmq.median, 3)
        figures["lost"] = sum(outcome.lost for outcome in self._audited)
        figures["duplicated"] = sum(outcome.duplicated for outcome in self._audited)
        figures["rounds"] = len(self._found["chain", TCP, ""])
        figures["background_cpu_percent"] = round(self._background_percent, 1)
        figures["seconds"] = round(self.elapsed_s(), 1)
        return figures

    def document(self, figures: dict[str, Any]) -> dict[str, Any]:
        """Everything for the JSON file."""
        rounds = {
            f"{workload}, {_NAMES[who]}, {pacing or 'unpaced'}": [
                {"rate_per_s": one.rate_per_s, "cpu_us": one.cpu_us, "latency_ms": one.latency_ms}
                for one in found
            ]
            for (workload, who, pacing), found in self._found.items()
        }
        ranges = {
            f"{workload}_{name}": limits(self._rate(workload, who))
            for workload in _UNIT
            for who, name in _NAMES.items()
        }
        return {"headline": figures, "machine": machine(), "ranges": ranges, "rounds": rounds}


if __name__ == "__main__":
    main(Run)
