"""Locality-aware routing: the paper's figures 7 to 9 and 11 to 14, with ours beside its numbers.

    python bench/locality.py [--quick] [--rounds N] [--out FOLDER]

- Figures 11 and 12, without a network: posts of regions and hashtags that drift from week to week
  (`locality_parts/drift.py`, in the manner of the paper's Twitter data, which cannot be had), over
  6 servers. `hash`: no tables; `offline`: tables of the first week; `online`: new ones after every
  week, of what sketches of 1 MB have counted; `policy`: when `LocalityPolicy` says that it pays. At
  the end means the mean of the last third of the weeks. Imbalance is what the busiest instance gets
  above the average.
- `sketch_overhead_percent`: CPU time per record of a job of two counts by key on local Spark, with
  `count_pairs=True` beside the same without, in turns.
- Figures 7, 8, 9, 13 and 14 on hosts: network namespaces of this machine whose links are limited,
  with a standalone Spark cluster on them. The paper's application: a source and two counts on each
  server, tuples (key, key, padding). `hash`: both hops by hash; `locality`: what belongs together
  is on one server; `worst`: never. `--quick` has figure 9's tuple sizes at 1 Gbit/s, parallelism 3
  and locality 80 % only. The hosts share this machine's cores, so that what CPU-bound cases reach
  says nothing of more machines; ratios at the same parallelism do.
- On line: the job starts by hash and counts pairs; then keys move by `job.apply(job.key_tables())`
  while it runs. Where jobs cannot do that yet, it is stopped and started with these tables, and
  `online_live` says so.

Where namespaces are not allowed, one line says so, and so does the JSON. Of figures 7, 8, 9, 13 and
14 the paper gives numbers in pictures only; what its text says of them stands in `PAPER`.
"""

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from harness.frame import Benchmark, Options, machine, main
from harness.spread import Spread, cell, rounded, spread_of
from hosts_parts.namespaces import NotAllowedError, allowed
from locality_parts.drift import Drift
from locality_parts.limited import Case, Limited
from locality_parts.overhead import cpu_us, posts
from locality_parts.tuples import HASH, LOCAL, ROUTINGS
from locality_parts.weeks import CONTESTANTS, SERVERS, Week, edges_for_half, figure_11, figure_12
from tailrace.spark.session import local_spark

PAPER = {
    "figure 7": "20 kB: slower on 2 servers than on 1; only locality-aware scales linearly beyond"
    " 2; at locality 100 % and padding 0 the network costs the others 22 % (else in the picture)",
    "figure 8": "hash is not affected by locality; a plateau above 90 %; 10 % more locality are up"
    " to 25 % more throughput (else in the picture)",
    "figure 9": "the gap grows with padding and parallelism; hash and worst case are alike where it"
    " is hardest (else in the picture)",
    "figure 11": {
        "locality": {"hash": 0.166, "offline": 0.40, "online": 0.50, "expected": 0.75},
        "imbalance": {"hash": 0.12, "offline": 0.40, "online": "small, with spikes"},
    },
    "figure 12": "0.1 % of the edges double the locality at parallelism 6; 1,000,000 suffice",
    "figure 13": "throughput rises at once with the first reconfiguration, up to 2 times (else in"
    " the picture)",
    "figure 14": "the gap grows with parallelism, 4 kB at 1 Gbit/s (in the picture)",
}


@dataclass(frozen=True)
class Plan:
    """What to measure and for how long."""

    rounds: int
    weeks: int
    edges: tuple[int, ...]
    parallelisms: tuple[int, ...]
    sketch_rounds: int
    sketch_s: float
    hosts: int
    warm_s: float
    rate_s: float
    online: tuple[tuple[int, str], ...]
    """Padding and link of each on-line change."""
    budget_s: float
    figures: tuple[str, ...] = ()
    posts: int = 150_000


QUICK = Plan(
    rounds=2,
    weeks=8,
    edges=(60, 250, 1000, 4000, 16_000, 10**6),
    parallelisms=(6,),
    sketch_rounds=5,
    sketch_s=1.2,
    hosts=3,
    warm_s=0.5,
    rate_s=1.2,
    online=((12_000, "1gbit"),),
    budget_s=88.0,
    figures=("9",),
    posts=80_000,
)
FULL = Plan(
    rounds=3,
    weeks=30,
    edges=(*(60 * 2**i for i in range(11)), 10**6),
    parallelisms=(2, 3, 4, 5, 6),
    sketch_rounds=11,
    sketch_s=4.0,
    hosts=6,
    warm_s=1.0,
    rate_s=3.0,
    online=((4000, "10gbit"), (4000, "1gbit"), (12_000, "10gbit"), (12_000, "1gbit")),
    budget_s=3600.0,
    figures=("7", "8", "9", "14"),
)
_SIZES_QUICK = (0, 4000, 12_000)
_SIZES = (0, 4000, 8000, 12_000, 16_000, 20_000)


def cases(figure: str, quick: bool) -> list[Case]:
    """The settings of one of the paper's figures."""
    if figure == "7":
        some = [Case(n, pad, 0.6, r) for n in (1, 2, 3, 6) for pad in (0, 8000, 20_000)
                for r in ROUTINGS]  # fmt: skip
        return [*some, *(Case(3, pad, 1.0, LOCAL) for pad in (0, 8000, 20_000))]
    if figure == "8":
        shares = (0.6, 0.7, 0.8, 0.9, 1.0)
        return [Case(n, 12_000, share, r) for n in (2, 3, 6) for share in shares for r in ROUTINGS]
    if figure == "9":
        routings = (HASH, LOCAL) if quick else ROUTINGS
        servers = (3,) if quick else (2, 3, 6)
        sizes = _SIZES_QUICK if quick else _SIZES
        return [Case(n, pad, 0.8, r) for n in servers for pad in sizes for r in routings]
    return [Case(n, 4000, 0.8, r) for n in (2, 3, 4, 6) for r in (HASH, LOCAL)]


@dataclass
class _Found:
    """All that was measured."""

    weeks: list[Week] = field(default_factory=list)
    by_edges: dict[int, dict[int, float]] = field(default_factory=dict)
    all_edges: int = 0
    sketch: dict[bool, list[float]] = field(default_factory=lambda: {True: [], False: []})
    rates: dict[Case, list[float]] = field(default_factory=lambda: defaultdict(list))
    local: dict[Case, float] = field(default_factory=dict)
    online: list[dict[str, Any]] = field(default_factory=list)


class Run(Benchmark):
    """One run of the benchmark."""

    name = "locality"
    description = "Locality-aware routing beside hashes, with the paper's numbers."
    quick_help = "short rounds, one parallelism on hosts, within 100 s"

    def __init__(self, options: Options, folder: Path, started: float) -> None:
        super().__init__(options, folder, started)
        self._plan = self.plan(QUICK, FULL)
        self._background_percent = 0.0
        self._refused = ""
        self._found = _Found()

    def measure(self) -> None:
        """Do all of the plan, or as much as there is time for."""
        self._background_percent = self.background_percent()
        self._refused = allowed()
        with ThreadPoolExecutor(1) as aside:
            starting = None
            if not self._refused:
                self.say(f"starting Spark on {self._plan.hosts} hosts with limited links")
                starting = aside.submit(self._hosts)
            self._weeks()  # nothing of it is timed
            limited = None if starting is None else starting.result()
        self._sketches()
        if limited is not None:
            self._on_hosts(limited)

    def _hosts(self) -> Limited | None:
        try:
            limited = Limited(self._plan.hosts, self.folder)
        except NotAllowedError as error:
            self._refused = str(error)
            return None
        self.ends.callback(limited.end)
        limited.run("rate", Case(self._plan.hosts, 0, 0.8, HASH), 0.1, 0.6)  # to warm up
        return limited

    def _weeks(self) -> None:
        plan = self._plan
        drift = Drift(posts=plan.posts)
        self.say(f"{plan.weeks} weeks of posts over {SERVERS} servers")
        self._found.weeks = figure_11(drift, plan.weeks)
        self._found.all_edges = len(next(drift.weeks()).counts)
        self.say("locality by edges")
        self._found.by_edges = figure_12(drift, plan.parallelisms, plan.edges)

    def _sketches(self) -> None:
        self.say("counting pairs on local Spark")
        spark = local_spark(2)
        try:
            source = posts()
            cpu_us(spark, source, 0.5, True)  # to warm up
            for number in range(self._plan.sketch_rounds):
                for counts in (True, False) if number % 2 else (False, True):
                    step = partial(cpu_us, spark, source, self._plan.sketch_s, counts)
                    self._found.sketch[counts].append(self.undisturbed(step))
        finally:
            spark.stop()

    def _on_hosts(self, limited: Limited) -> None:
        plan = self._plan
        self.say("tuples between hosts")
        for padding, link in plan.online:
            case = Case(3, padding, 0.8, HASH, link)
            told = limited.run("online", case, plan.warm_s, plan.rate_s)
            self._found.online.append({**asdict(case), **told})
        all_cases = dict.fromkeys(
            case for figure in plan.figures for case in cases(figure, self.options.quick)
        )
        for number in range(plan.rounds):
            order = list(all_cases)
            for case in order if number % 2 == 0 else reversed(order):
                if self.elapsed_s() > plan.budget_s and number:
                    self.say(f"no time for the rest of round {number + 1} of {plan.rounds}")
                    return
                step = partial(limited.run, "rate", case, plan.warm_s, plan.rate_s)
                told = self.undisturbed(step, until_s=plan.budget_s)
                self._found.rates[case].append(told["rate_per_s"])
                self._found.local[case] = told["local"]
            self.say(f"round {number + 1} of {plan.rounds}")

    # ---- what came of it ----

    def _last(self, what: str) -> dict[str, float]:
        weeks = self._found.weeks
        last = weeks[-max(len(weeks) // 3, 1) :]
        return {name: mean(getattr(one, what)[name] for one in last) for name in CONTESTANTS}

    def _rate(self, case: Case) -> Spread | None:
        return spread_of(self._found.rates.get(case, []))

    def _ratio(self, case: Case) -> float | None:
        """What locality does beside hashes, of the medians."""
        one = self._rate(Case(case.servers, case.padding_bytes, case.locality, LOCAL, case.link))
        other = self._rate(Case(case.servers, case.padding_bytes, case.locality, HASH, case.link))
        return None if one is None or other is None else rounded(one.median / other.median)

    @property
    def _sketch(self) -> Spread | None:
        both = zip(self._found.sketch[True], self._found.sketch[False], strict=True)
        return spread_of([100 * (with_ / without - 1) for with_, without in both])

    def table(self) -> str:
        """Everything that was measured, as text."""
        lines = ["", f"{'figure 11: at the end':34}{'locality':>12}{'imbalance':>12}   the paper's"]
        locality, imbalance = self._last("locality"), self._last("imbalance")
        paper = {"hash": "17 %, 12 %", "offline": "40 %, 40 %", "online": "50 %, small"}
        lines += [
            f"{name:34}{locality[name]:>12.1%}{imbalance[name]:>12.1%}   {paper.get(name, '')}"
            for name in CONTESTANTS
        ]
        changes = sum(week.policy_changed for week in self._found.weeks)
        lines.append(
            f"on-line tables promised {self._found.weeks[-1].expected:.0%} (75 %); the policy"
            f" changed them {changes} times in {len(self._found.weeks)} weeks"
        )
        lines += ["", f"figure 12: locality of the next week, of {self._found.all_edges} edges"]
        for servers, by_edges in self._found.by_edges.items():
            told = ", ".join(f"{edges}: {local:.0%}" for edges, local in by_edges.items())
            lines.append(f"{servers} servers: {told}")
        lines += ["", f"counting pairs: {cell(self._sketch)} % more CPU time per record", ""]
        if self._refused:
            return "\n".join([*lines, f"no hosts to measure between: {self._refused}", ""])
        lines.append(f"{'tuples per second':52}{'median (lowest..highest)':>34}{'local':>8}")
        for case in self._found.rates:
            local = f"{self._found.local[case]:.0%}"
            lines.append(f"{case.label:52}{cell(self._rate(case)):>34}{local:>8}")
        for one in self._found.online:
            how = "keys moved while it ran" if one["live"] else "stopped and started with tables"
            before, after = one["before_per_s"], one["after_per_s"]
            lines.append(
                f"on line, {one['padding_bytes']} B, {one['link']}: {before:,.0f} before,"
                f" {after:,.0f} after ({after / before:.2f}; {how})"
            )
        return "\n".join([*lines, ""])

    def headline(self) -> dict[str, Any]:
        """The figures that matter most."""
        by_edges = self._found.by_edges[max(self._found.by_edges)]
        half = edges_for_half(by_edges)
        sketch = self._sketch
        figures: dict[str, Any] = {
            "locality": {name: rounded(v) for name, v in self._last("locality").items()},
            "imbalance": {name: rounded(v) for name, v in self._last("imbalance").items()},
            "promised_locality": rounded(self._found.weeks[-1].expected),
            "policy_changes": sum(week.policy_changed for week in self._found.weeks),
            "weeks": len(self._found.weeks),
            "edges_for_half_of_the_gain": half,
            "edges_for_half_of_the_gain_percent": rounded(100 * half / self._found.all_edges),
            "sketch_overhead_percent": None if sketch is None else round(sketch.median, 2),
            "hosts_allowed": not self._refused,
            "paper": PAPER["figure 11"],
        }
        if self._refused:
            figures["reason"] = self._refused
        sizes = sorted({case.padding_bytes for case in self._found.rates if case.servers == 3})
        figures["throughput_ratio_locality_over_hash"] = {
            str(size): self._ratio(Case(3, size, 0.8, HASH)) for size in sizes
        } or None
        after = {
            f"{one['padding_bytes']} B, {one['link']}": rounded(
                one["after_per_s"] / one["before_per_s"]
            )
            for one in self._found.online
        }
        live = bool(self._found.online) and all(one["live"] for one in self._found.online)
        figures["throughput_after_over_before"] = after if live else None
        figures["throughput_restarted_over_before"] = after if after and not live else None
        figures["online_live"] = live
        figures["rounds"] = min((len(rates) for rates in self._found.rates.values()), default=0)
        figures["background_cpu_percent"] = round(self._background_percent, 1)
        figures["seconds"] = round(self.elapsed_s(), 1)
        return figures

    def document(self, figures: dict[str, Any]) -> dict[str, Any]:
        """Everything for the JSON file."""
        return {
            "headline": figures,
            "machine": machine(),
            "paper": PAPER,
            "figure 11": [asdict(week) for week in self._found.weeks],
            "figure 12": self._found.by_edges,
            "cpu_us_per_record": {
                "with": self._found.sketch[True],
                "without": self._found.sketch[False],
            },
            "hosts": {
                figure: {
                    case.label: {
                        "rates": self._found.rates.get(case, []),
                        "local": self._found.local.get(case),
                    }
                    for case in cases(figure, self.options.quick)
                }
                for figure in self._plan.figures
            },
            "on line (figure 13)": self._found.online,
        }


if __name__ == "__main__":
    main(Run)
