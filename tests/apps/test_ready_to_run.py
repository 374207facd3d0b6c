"""What holds for every application."""

from importlib import import_module
from typing import Any

import pytest
from pyspark import cloudpickle

from tailrace.cli.command import load
from tailrace.plan.model.machine import cluster
from tailrace.testing import run

GENERATORS = {
    "exclamation": "names",
    "fraud_detection": "transactions",
    "hashtags": "posts",
    "linear_road": "traffic",
    "sol": "messages",
    "spike_detection": "readings",
    "throughput": "items",
    "word_count": "sentences",
    "yahoo_ads": "events",
    "yahoo_page_load": "lines",
    "yahoo_processing": "events",
}
every_app = pytest.mark.parametrize("name", GENERATORS)


@every_app
def test_the_command_line_finds_it_and_it_ships(name: str) -> None:
    graph = load(f"tailrace.apps.{name}:topology").graph
    again = cloudpickle.loads(cloudpickle.dumps(graph))
    assert [node.name for node in again.operators] == [node.name for node in graph.operators]


@every_app
def test_it_runs_at_a_rate_and_nothing_is_lost(name: str) -> None:
    module: Any = import_module(f"tailrace.apps.{name}")
    report = run(module.topology(per_s=500, seconds=1), workers=2)
    assert max(report.records_in.values()) >= 500
    assert report.sent == report.received
    assert not any(report.skipped.values())
    assert not any(report.late.values())


@every_app
def test_its_plan_can_be_explained(name: str) -> None:
    topology = load(f"tailrace.apps.{name}:topology")
    text = topology.plan(3, "rlas", machine=cluster(1, cores=3)).explain()
    assert f"{topology.name}: plan of 'rlas'" in text
    assert "records/s from the sources" in text
    for operator in topology.graph.operators:
        assert operator.name in text


@every_app
def test_records_follow_from_the_seed_and_the_number_alone(name: str) -> None:
    generator: Any = getattr(import_module(f"tailrace.apps.{name}"), GENERATORS[name])
    numbers = [*range(50), 12_345, 3]
    some, same, other = generator(seed=1), generator(seed=1), generator(seed=2)
    assert [some(i) for i in numbers] == [same(i) for i in reversed(numbers)][::-1]
    assert [some(i) for i in numbers] != [other(i) for i in numbers]
