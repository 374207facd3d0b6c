"""The public names, the examples in their docstrings, and the example programs."""

from __future__ import annotations

import doctest
import importlib.util
import runpy
from pathlib import Path
from types import ModuleType

import pytest

from tailrace import sinks, sources, stream, testing, topology
from tailrace.connectors import parquet, sockets
from tailrace.control import feed
from tailrace.graph.wiring import wire
from tailrace.spark import rows

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_names_of_sources_and_sinks() -> None:
    assert sources.__all__ == [
        "bursts",
        "dataframe",
        "items",
        "lines",
        "listen",
        "ndjson",
        "poisson",
        "rate",
        "socket",
        "unpaced",
    ]
    assert sinks.__all__ == ["call", "console", "ndjson", "parquet", "socket", "text"]


@pytest.mark.parametrize(
    "module",
    [feed, parquet, rows, sinks, sockets, sources, stream, testing, topology],
    ids=lambda m: m.__name__,
)
def test_the_examples_of_docstrings_run(module: ModuleType) -> None:
    results = doctest.testmod(module)
    assert results.attempted
    assert not results.failed


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("rates", "bursts   |█    █"),
        ("tail", "status 200: 3 requests"),
        ("to_parquet", "part-00001.parquet: "),
    ],
)
def test_an_example_runs(
    name: str, says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", [name])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert says in capsys.readouterr().out


def test_the_socket_example_is_a_topology_that_can_start() -> None:
    spec = importlib.util.spec_from_file_location("socket_words", EXAMPLES / "socket_words.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert wire(module.topology.graph).instances >= 3
