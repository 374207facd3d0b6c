"""The example programs that run on Spark, whole and as they are but for ports and durations."""

from __future__ import annotations

import json
import runpy
import socket
import threading
from ast import literal_eval
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from tailrace.planner.calibrate import cache_path
from tailrace.planner.detect import detect
from tailrace.topology import Topology

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE_S = 60.0


def run(name: str, folder: Path, **instead: str) -> None:
    """Run an example with some of its text replaced, as `__main__`."""
    text = (EXAMPLES / f"{name}.py").read_text()
    for old, new in instead.items():
        assert text.count(old) == 1, f"{name}.py has no {old!r}, or several"
        text = text.replace(old, new)
    program = folder / f"{name}.py"
    program.write_text(text)
    runpy.run_path(str(program), run_name="__main__")


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[Any], None]], None]]:
    """Have something done to the job that an example starts, beside it; then the job is stopped."""
    threads: list[threading.Thread] = []
    errors: list[BaseException] = []
    real = Topology.start

    def begin(act: Callable[[Any], None]) -> None:
        def start(self: tr.Topology, *arguments: Any, **options: Any) -> Any:
            job = real(self, *arguments, **options)

            def visit() -> None:
                try:
                    act(job)
                except BaseException as error:
                    errors.append(error)
                finally:
                    job.stop()

            threads.append(threading.Thread(target=visit))
            threads[-1].start()
            return job

        monkeypatch.setattr(Topology, "start", start)

    yield begin
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(threads) == 1
    assert not errors, errors


def until(job: Any, condition: Callable[[], object]) -> None:
    while not condition():
        assert job.is_active, job.status
        threading.Event().wait(0.02)


def test_totals_survive_the_death_of_a_worker(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("checkpoint", tmp_path)
    event, *totals = capsys.readouterr().out.splitlines()
    assert "is gone: killed" in event
    assert "running again after" in event
    assert sorted(totals) == ["('east', 6666)", "('north', 6667)", "('south', 6667)"]


def test_another_version_goes_on_from_a_savepoint(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("savepoint", tmp_path)
    stopped, *pages = capsys.readouterr().out.splitlines()
    assert 2_000 <= int(stopped.split()[2]) < 6_000
    results = dict(map(literal_eval, pages))
    assert {page: visits for page, (visits, _) in results.items()} == {
        f"page {number}": 1_500 for number in range(4)
    }
    assert sum(seconds for _, seconds in results.values()) < 6_000 * 4.5  # only those since


def test_a_count_gets_more_instances_and_another_worker(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("rescale", tmp_path)
    said = capsys.readouterr().out
    assert 200 < int(said.split()[0]) < 500  # of a thousand users a third moves
    assert "40000 clicks" in said
    assert said.count("done") == 2


def test_a_job_with_a_slow_worker_deals_otherwise_by_itself(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("short_tails", tmp_path)
    said = capsys.readouterr().out
    assert "tail: tries balance (asked -> lookup): asked -> lookup: receivers" in said
    assert "6000 answers" in said


def test_a_dataframe_in_and_a_table_out(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("from_spark", tmp_path)
    out = capsys.readouterr().out
    assert "while it runs: True" in out
    assert "|sensor|count|" in out


def test_a_plan_is_made_kept_and_run(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_path().parent.mkdir(parents=True)
    replace(detect(), yardstick_ns=300.0).save(cache_path())  # or it would measure for seconds
    run("plan", tmp_path, **{"seconds=3": "seconds=0.5"})
    out = capsys.readouterr().out
    assert "|stream|sum(records)|" in out.replace(" ", "")
    assert "sentences/s, got" in out


def test_tables_keep_messages_in_their_worker(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run("locality", tmp_path, **{"SECONDS = 6": "SECONDS = 1"})
    shares = [line.rpartition("%")[0].split()[-1] for line in capsys.readouterr().out.splitlines()]
    by_hash, offline, counted = map(int, shares)
    assert by_hash < 50 < 65 < min(offline, counted)


def test_tables_of_the_past_keep_orders_in_their_workers(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run("offline_tables", tmp_path, **{"SECONDS = 4": "SECONDS = 1"})
    shares = [line.partition("%")[0].split()[-1] for line in capsys.readouterr().out.splitlines()]
    by_hash, by_table = map(int, shares)
    assert by_hash < 45 < 60 < by_table
    assert len(tr.Tables.load(tmp_path / "orders.parquet")) > 300


def test_the_past_and_then_live_visits(
    spark: Any,
    tmp_path: Path,
    free_port: int,
    meanwhile: Callable[[Callable[[Any], None]], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    jobs = []

    def visit(job: Any) -> None:
        jobs.append(job)
        until(job, lambda: job.status == "running")
        with socket.create_connection(("127.0.0.1", free_port), PATIENCE_S) as connection:
            for at_s in range(100):
                line = json.dumps({"at_s": at_s, "page": "home"})
                connection.sendall(f"{line}\n".encode())
            until(job, lambda: job.last_progress.delivered)

    meanwhile(visit)
    run("history", tmp_path, **{"PORT = 9998": f"PORT = {free_port}"})
    assert jobs[0].last_progress.emitted == {"source": 100}
    assert capsys.readouterr().out.count("20.0") == 3  # visits a minute of each page


def test_words_from_a_socket(
    spark: Any,
    tmp_path: Path,
    meanwhile: Callable[[Callable[[Any], None]], None],
) -> None:
    jobs = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)

        def speak(job: Any) -> None:
            jobs.append(job)
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"to be or not to be\n")
                until(job, lambda: job.last_progress.delivered == 6)

        meanwhile(speak)
        port = server.getsockname()[1]
        run("socket_words", tmp_path, **{'"127.0.0.1", 9999': f'"127.0.0.1", {port}'})
    assert jobs[0].last_progress.delivered == 6
