"""The command `tailrace`."""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tailrace.cli.state import add_parser as add_state_parser
from tailrace.cli.state import state
from tailrace.plan.schedulers.by_name import SCHEDULERS
from tailrace.spark.ship import pack, ship
from tailrace.topology import Topology

_NAMES = ", ".join(SCHEDULERS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code says whether all went well."""
    parser = argparse.ArgumentParser(prog="tailrace", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a topology on Spark, with a live view")
    run.add_argument("topology", help="module:name of a Topology, or of a function that makes one")
    run.add_argument(
        "--ship",
        action="append",
        default=[],
        metavar="MODULE",
        help="a module to bring to a cluster's executors beside tailrace and the topology's own",
    )
    run.add_argument("--seconds", type=float, help="drain and stop after running for so long")
    run.add_argument("--scheduler", help=f"who decides what runs where: {_NAMES}")
    run.add_argument(
        "--checkpoint",
        metavar="FOLDER",
        help="path or URL where state is kept; if it has an epoch, the job goes on from there",
    )
    run.add_argument(
        "--checkpoint-every", type=float, metavar="S", help="seconds between epochs; default: 1"
    )
    run.add_argument("--restore", metavar="FOLDER", help="a savepoint to begin with")
    explain = commands.add_parser(
        "explain", help="say what would run where, how fast it should be and what limits it"
    )
    explain.add_argument("topology", help="as for run; its operators run on a sample, for seconds")
    explain.add_argument("--workers", type=int, default=2)
    explain.add_argument("--scheduler", help=f"one of {_NAMES}; default: spread, as run does it")
    for command in (run, explain):
        command.add_argument(
            "--rate", type=float, help="records/s of each source: plan as small as sustains that"
        )
    explain.add_argument("--html", metavar="FILE", help="also draw it")
    demo = commands.add_parser("demo", help="a word count on local Spark, beside a micro-batch")
    demo.add_argument("--seconds", type=float, default=8.0)
    bench = commands.add_parser("bench", help="measure this Spark: rates and latencies")
    bench.add_argument("--quick", action="store_true", help="2 seconds per measurement, not 10")
    bench.add_argument("--rate", type=float, default=10_000, help="records/s to measure latency at")
    bench.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    pack = commands.add_parser("pack", help="what jobs need on executors, as a file to submit")
    pack.add_argument("file", help="where to write it, for spark-submit --archives FILE#tailrace")
    pack.add_argument("modules", nargs="*", help="modules and packages beside tailrace itself")
    warm_up = commands.add_parser(
        "warm-up", help="keep the JVM's classes (110 MB in ~/.cache): local Spark starts sooner"
    )
    warm_up.add_argument("--remove", action="store_true", help="take them away again")
    doctor = commands.add_parser("doctor", help="check what jobs need of a Spark, and what to do")
    doctor.add_argument("--workers", type=int, help="task slots of a local Spark")
    doctor.add_argument("--master", help="where Spark runs; default: as for run")
    add_state_parser(commands)
    for command in (run, bench):
        command.add_argument("--workers", type=int, help="default: Spark's task slots")
        command.add_argument(
            "--master", help="where Spark runs; default: the active session, or on this machine"
        )
    options = parser.parse_args(arguments)
    try:
        workers = getattr(options, "workers", None)
        if workers is not None and workers < 1:
            raise ValueError(f"--workers is {workers}; it must be at least 1")
        return int(_COMMANDS[options.command](options))
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except (ValueError, RuntimeError, ImportError, OSError) as error:
        print(f"tailrace: {error}", file=sys.stderr)
        return 1


def load(name: str) -> Topology:
    """The topology that `module:name` stands for.

    What the user's code raises becomes a RuntimeError with the traceback of that code.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise ValueError(f"{name!r} does not name a topology; write it as module:name")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{module_name}.".startswith(f"{missing}."):
            raise
        raise _raised(f"importing {module_name}", error) from error
    if not hasattr(module, attribute):
        raise ValueError(f"module {module_name!r} has no {attribute!r}")
    found = getattr(module, attribute)
    if callable(found):
        needed = [repr(p.name) for p in inspect.signature(found).parameters.values() if _needed(p)]
        if needed:
            raise ValueError(f"{name} must take no required arguments; it has {', '.join(needed)}")
        try:
            found = found()
        except Exception as error:
            raise _raised(f"{name}()", error) from error
    if not isinstance(found, Topology):
        raise ValueError(f"{name} is a {type(found).__name__}; expected a Topology")
    return found


def _needed(parameter: inspect.Parameter) -> bool:
    many = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not many


def _raised(what: str, error: Exception) -> RuntimeError:
    """What the user's code raised, with its traceback from where that code begins."""
    begin = error.__traceback__
    while begin is not None and _is_ours(begin.tb_frame.f_code.co_filename):
        begin = begin.tb_next
    text = "".join(traceback.format_exception(type(error), error, begin))
    return RuntimeError(f"{what} raised {type(error).__name__}\n\n{text.rstrip()}")


def _is_ours(file: str) -> bool:
    return file in (__file__, importlib.__file__) or file.startswith("<frozen importlib")


def _run(options: argparse.Namespace) -> int:
    from tailrace.cli.view import prints, watch

    if options.checkpoint_every is not None and options.checkpoint is None:
        raise ValueError("--checkpoint-every needs --checkpoint FOLDER, where state is kept")
    every_s = 1.0 if options.checkpoint_every is None else options.checkpoint_every
    topology = load(options.topology)
    in_place = not prints(topology.graph)
    spark = _spark(options)
    if options.master or options.ship:
        ship(spark, [options.topology.partition(":")[0], *options.ship])
    begun_s = time.monotonic()
    job = topology.start(
        spark,
        workers=options.workers,
        scheduler=options.scheduler,
        rate=options.rate,
        checkpoint=options.checkpoint,
        checkpoint_s=every_s,
        restore=options.restore,
    )
    if epoch := job.resumed_epoch:
        kept_in = options.restore or options.checkpoint
        print(f"going on from epoch {epoch} in {kept_in}", file=sys.stderr)
    code = 0
    try:
        job.await_running()
        if job.is_active and job.exception() is None:
            took_s = time.monotonic() - begun_s
            print(started(len(job.workers), took_s), file=sys.stderr)
        watch(job, options.seconds, in_place=in_place)
    except KeyboardInterrupt:
        last = "a last epoch is made" if options.checkpoint else "what is under way runs out"
        print(f"stopping: {last} first", file=sys.stderr)
        code = 130
    finally:
        if job.is_active:
            job.stop()
    error = job.exception()
    if error is not None:
        print(f"tailrace: {error}", file=sys.stderr)
        return 1
    print(summary(job))
    return code


def started(workers: int, took_s: float) -> str:
    """That a job runs, and how long it took to start."""
    who = "1 worker runs" if workers == 1 else f"{workers} workers run"
    return f"{who} after {took_s:.1f} s"


def summary(job: Any) -> str:
    """A finished job in three lines."""
    progress = job.last_progress
    emitted = sum(progress.emitted.values())
    balance = "nothing lost, nothing twice" if progress.balanced else "the audit does not balance"
    return (
        f"{job.name}: {emitted:,} records in, {progress.delivered:,} at the sinks, {balance}\n"
        f"latency from source to sink: p50 {progress.latency_ms(50):.2f} ms,"
        f" p99 {progress.latency_ms(99):.2f} ms, p99.9 {progress.latency_ms(99.9):.2f} ms"
    )


def _explain(options: argparse.Namespace) -> int:
    scheduler = options.scheduler or ("spread" if options.rate is None else "auto")
    made = load(options.topology).plan(options.workers, scheduler, rate=options.rate)
    print(made.explain())
    if options.html:
        Path(options.html).write_text(made.picture())
    return 0


def _demo(options: argparse.Namespace) -> int:
    from tailrace.cli.demo import demo

    return demo(options.seconds)


def _bench(options: argparse.Namespace) -> int:
    from tailrace.cli.bench import measure, table

    spark = _spark(options)
    if options.master:
        ship(spark)
    seconds = 2.0 if options.quick else 10.0
    results = measure(spark, seconds, options.rate, options.workers)
    print(json.dumps(results) if options.json else table(results))
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from tailrace.cli.doctor import doctor

    return doctor(lambda: _spark(options))


def _pack(options: argparse.Namespace) -> int:
    sys.path.insert(0, str(Path.cwd()))
    pack(options.file, options.modules)
    print(
        f"{options.file} has {Path(options.file).stat().st_size / 1e6:.1f} MB. Submit it with\n"
        f"  --archives {options.file}#tailrace --conf spark.executorEnv.PYTHONPATH=tailrace"
    )
    return 0


def _warm_up(options: argparse.Namespace) -> int:
    from tailrace.cli.warm_up import remove, warm_up

    return remove() if options.remove else warm_up()


def _spark(options: argparse.Namespace) -> Any:
    """The session to run on; says what it waits for."""
    from tailrace.spark.session import find_spark

    print("starting Spark ...", file=sys.stderr)
    begun_s = time.monotonic()
    spark = find_spark(options.master, options.workers)
    took_s = time.monotonic() - begun_s
    _interruptible()
    print(f"Spark is up after {took_s:.1f} s; starting the workers ...", file=sys.stderr)
    return spark


def _interruptible() -> None:
    """Have Ctrl-C and SIGTERM raise a KeyboardInterrupt; on its own, Spark cancels all jobs."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


_COMMANDS = {
    "run": _run,
    "explain": _explain,
    "demo": _demo,
    "bench": _bench,
    "doctor": _doctor,
    "pack": _pack,
    "warm-up": _warm_up,
    "state": state,
}
