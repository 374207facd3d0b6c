"""Encryption and ports of jobs on a real, local Spark."""

from __future__ import annotations

import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from tailrace.spark.wire import Wire, wire_of

PATIENCE_S = 60.0


class Settings:
    """A cluster of which only its settings are asked."""

    def __init__(self, local: bool, **settings: str) -> None:
        self.is_local = local
        self._settings = {name.replace("_", "."): text for name, text in settings.items()}

    def setting(self, name: str) -> str:
        return self._settings.get(name, "")

    def enabled(self, name: str) -> bool:
        return self.setting(name) == "true"


def wire(local: bool, tls: Any = None, ports: Any = None, **settings: str) -> Wire:
    return wire_of(Settings(local, **settings), tls, ports)  # type: ignore[arg-type]


def written(directory: Path) -> list[Any]:
    lines = [line for part in directory.glob("part-*") for line in part.read_text().splitlines()]
    return list(map(json.loads, lines))


def test_a_word_count_by_tls_is_exact(spark: Any, tmp_path: Path) -> None:
    topology = tr.Topology("by tls")
    sentences = [f"word{n % 7} word{n % 11} {'x' * (n % 500)}" for n in range(3000)]
    words = topology.source(sentences).shuffle().flat_map(str.split, parallelism=2)
    counts = words.key_by(lambda word: word).scan(lambda n, word: (n or 0) + 1, parallelism=2)
    counts.sink(tr.sinks.ndjson(str(tmp_path / "out")))
    job = topology.start(spark, workers=3, node="worker", tls=True)
    assert job.await_termination(PATIENCE_S)
    expected = Counter(word for sentence in sentences for word in sentence.split())
    assert sorted(written(tmp_path / "out")) == sorted(
        [word, n] for word, total in expected.items() for n in range(1, total + 1)
    )
    progress = job.last_progress
    assert progress.balanced
    assert progress.refusals == {}
    assert {way for one in job.workers for way in one["ways"].values()} == {"tcp"}


def test_rows_of_a_dataframe_are_fed_by_tls(spark: Any, tmp_path: Path) -> None:
    topology = tr.Topology("fed by tls")
    fed = topology.source(tr.sources.dataframe(spark.range(5000)), parallelism=2)
    fed.sink(tr.sinks.ndjson(str(tmp_path / "out")))
    job = topology.start(spark, workers=2, node="worker", tls=True, ports=(42_000, 42_900))
    assert job.await_termination(PATIENCE_S)
    rows = [row["id"] if isinstance(row, dict) else row for row in written(tmp_path / "out")]
    assert sorted(rows) == list(range(5000))
    hellos = job._coordinator.roster.hellos.values()
    ports = [job._coordinator.address[1], *(hello.address[1] for hello in hellos)]
    assert all(42_000 <= port <= 42_900 for port in ports)
    assert job._coordinator.tls


def test_a_transform_goes_by_tls_within_the_ports(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Wire(tls=True, ports=(43_000, 43_900))
    monkeypatch.setattr("tailrace.spark.transform.wire_of", lambda cluster: asked)
    topology = tr.Topology("transformed by tls")
    numbers = topology.source([0]).shuffle().map(_doubled, parallelism=2)
    numbers.shuffle().sink(lambda _: None)
    result = topology.transform(spark.range(1000), "n long", workers=2)
    assert sorted(row.n for row in result.collect()) == list(range(0, 2000, 2))


def _doubled(n: int) -> int:
    return 2 * n


@pytest.mark.parametrize(
    "setting",
    [
        "spark_network_crypto_enabled",
        "spark_authenticate_enableSaslEncryption",
        "spark_ssl_rpc_enabled",
        "spark_ssl_enabled",
    ],
)
def test_records_are_encrypted_when_spark_is(setting: str) -> None:
    assert wire(False, **{setting: "true"}).tls
    assert not wire(False, tls=False, **{setting: "true"}).tls
    assert not wire(False, **{setting: "false"}).tls


def test_that_sparks_wire_is_open_is_said_once_and_only_where_it_matters(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    wire(True)
    wire(False, spark_network_crypto_enabled="true")
    assert caplog.messages == []
    wire(False, spark_ssl_enabled="true")  # that is the web pages, not what tasks are sent by
    wire(False, tls=True)
    wire(False)
    assert len(caplog.messages) == 3
    assert all("Spark's own wire is open" in message for message in caplog.messages)
    assert ["all records" in message for message in caplog.messages] == [False, False, True]


def test_ports_come_from_the_call_or_from_sparks_settings() -> None:
    assert wire(True).ports is None
    assert wire(True, spark_tailrace_ports="40000-40100").ports == (40_000, 40_100)
    assert wire(True, ports=(1024, 1024), spark_tailrace_ports="1-2").ports == (1024, 1024)


@pytest.mark.parametrize(
    "ports", [(0, 5), (7, 5), (1, 70_000), (1,), 40_000, ("1", "2"), (1, 2, 3)]
)
def test_what_is_no_range_of_ports_is_refused(ports: Any) -> None:
    with pytest.raises(ValueError, match="the first and the last of a range"):
        wire(True, ports=ports)


@pytest.mark.parametrize("text", ["40000", "a-b", "2-1", "40000-40100-40200", "-"])
def test_a_setting_that_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"spark\.tailrace\.ports is"):
        wire(True, spark_tailrace_ports=text)


def test_tls_that_is_neither_true_nor_false_is_refused() -> None:
    with pytest.raises(TypeError, match="tls is 'yes'"):
        wire(True, tls="yes")
