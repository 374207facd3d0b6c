"""What every benchmark's command does around its measurements."""

import argparse
import json
import math
import os
import platform
import signal
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from harness.steal import Rounds

NOISY_PERCENT = 5
SETTINGS = {"rounds": (int, "how often to repeat"), "seconds": (float, "how long each run takes")}
P = TypeVar("P", bound=Any)
T = TypeVar("T")


@dataclass(frozen=True)
class Options:
    """What the user asked for."""

    quick: bool
    rounds: int | None
    out: Path
    seconds: float | None = None


class Benchmark(ABC):
    """One run of a benchmark; `name` is that of its files."""

    name: ClassVar[str]
    description: ClassVar[str]
    quick_help: ClassVar[str]
    settings: ClassVar[tuple[str, ...]] = ("rounds",)
    """Of `SETTINGS`, those that its plan has and the user may change."""

    def __init__(self, options: Options, folder: Path, started: float) -> None:
        self.options = options
        self.folder = folder
        self.ends = ExitStack()
        """What `end` calls, the last first."""
        self._rounds = Rounds()
        self._started = started

    def plan(self, quick: P, full: P) -> P:
        """Which of the two the user asked for, with the settings that they gave."""
        given = {name: getattr(self.options, name) for name in self.settings}
        changes = {name: value for name, value in given.items() if value is not None}
        return replace(quick if self.options.quick else full, **changes)

    def undisturbed(
        self,
        step: Callable[[], T],
        discard: Callable[[T], None] = lambda outcome: None,
        until_s: float = math.inf,
    ) -> T:
        """What a step finds; run again, boundedly, while the host steals more than 0.5% of it.

        Not after `until_s` since the start. `discard` gets what does not count. The headline says
        by `stolen_rounds` how often that was.
        """
        return self._rounds.run(step, discard, lambda: self.elapsed_s() < until_s)

    def elapsed_s(self) -> float:
        """The time since the command began."""
        return time.monotonic() - self._started

    def say(self, text: str) -> None:
        """Show progress."""
        print(f"[{self.elapsed_s():5.1f} s] {text}", file=sys.stderr, flush=True)

    def background_percent(self) -> float:
        """What others use of this machine, also said if it is much; before anything of ours."""
        percent = background_percent()
        self.warn_of_noise(percent)
        return percent

    def warn_of_noise(self, background_percent: float) -> None:
        """Say so if other programs use the machine."""
        if background_percent > NOISY_PERCENT:
            self.say(f"warning: other programs use {background_percent:.0f}% of this machine")

    @property
    def stolen_rounds(self) -> int:
        """Steps from which time was stolen, the repeated ones included."""
        return self._rounds.stolen

    @abstractmethod
    def measure(self) -> None:
        """Do all of the plan, or as much as there is time for."""

    def end(self) -> None:
        """End everything that was started; called once, however `measure` ended."""
        self.ends.close()

    @abstractmethod
    def table(self) -> str:
        """Everything that was measured, as text."""

    @abstractmethod
    def headline(self) -> dict[str, Any]:
        """The figures that matter most, as JSON can hold them."""

    @abstractmethod
    def document(self, figures: dict[str, Any]) -> dict[str, Any]:
        """Everything for the JSON file, with the headline in it."""

    def draw(self, path: Path) -> bool:
        """Write the figure, if this benchmark has one; ImportError if matplotlib is missing."""
        return False


B = TypeVar("B", bound=Benchmark)


def main(benchmark: type[B]) -> B:
    """Measure, print the table, write the files, print the headline as the last line."""
    started = time.monotonic()
    parser = argparse.ArgumentParser(description=benchmark.description)
    parser.add_argument("--quick", action="store_true", help=benchmark.quick_help)
    parser.set_defaults(**dict.fromkeys(SETTINGS))
    for name in benchmark.settings:
        kind, help_ = SETTINGS[name]
        parser.add_argument(f"--{name}", type=kind, help=help_)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("build/bench"),
        help=f"folder for {benchmark.name}.json and the figure",
    )
    options = Options(**vars(parser.parse_args()))
    for name in benchmark.settings:
        value = getattr(options, name)
        if value is not None and value <= 0:
            parser.error(f"--{name} is {value}; it must be more than 0")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out is {options.out}; that cannot be a folder: {error.strerror}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder:
        run = benchmark(options, Path(folder), started)
        try:
            run.measure()
        except KeyboardInterrupt:
            run.say("interrupted")
            sys.exit(130)
        finally:
            # Whoever asks a second time must not leave processes behind.
            both = (signal.SIGINT, signal.SIGTERM)
            handlers = [signal.signal(number, signal.SIG_IGN) for number in both]
            run.end()
            for number, handler in zip(both, handlers, strict=True):
                signal.signal(number, handler)

    print(run.table())
    figure = options.out / f"{benchmark.name}.png"
    try:
        if run.draw(figure):
            print(f"Figure: {figure}")
    except ImportError as error:
        run.say(f"no figure: {error}")
    figures = {**run.headline(), "stolen_rounds": run.stolen_rounds}
    document = options.out / f"{benchmark.name}.json"
    document.write_text(json.dumps(run.document(figures), indent=1) + "\n")
    print(f"All figures: {document}\n")
    print(json.dumps(figures))
    return run


def machine() -> dict[str, Any]:
    """What this machine is, for the JSON file."""
    return {
        "cpus": os.cpu_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
    }


def processor_ticks() -> tuple[int, int]:
    """The idle and the total time of all cores since the machine started."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def busy_percent(before: tuple[int, int]) -> float:
    """How much of the machine has been in use since then."""
    idle, total = (now - then for now, then in zip(processor_ticks(), before, strict=True))
    return 100 * (1 - idle / total)


def background_percent() -> float:
    """What others use of this machine; to be asked before anything of ours runs."""
    before = processor_ticks()
    time.sleep(0.5)
    return busy_percent(before)
