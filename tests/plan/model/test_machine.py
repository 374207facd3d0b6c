"""Machines: places, what crossing between them costs, and the file they are kept in."""

from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from tailrace.plan.model.machine import (
    Cost,
    Crossing,
    Jumbo,
    Machine,
    Node,
    Place,
    Socket,
    cluster,
    server_a,
    server_b,
)


def test_a_cost_counts_records_bytes_and_whole_cache_lines() -> None:
    assert Cost(record_ns=10, byte_ns=0.5).ns(100) == 60
    assert Cost(line_ns=300).ns(64) == 300
    assert Cost(line_ns=300).ns(65) == 600


def test_server_a_is_that_of_the_paper() -> None:
    machine = server_a()
    places = machine.sockets()
    assert machine.cores == 144
    assert [place.cores for place in places] == [18] * 8
    assert machine.crossing(0, 0, places).receiver.ns(64) == 0
    assert machine.crossing(0, 3, places).receiver.ns(64) == 307.7
    assert machine.crossing(0, 4, places).receiver.ns(64) == 548.0
    assert machine.crossing(0, 4, places).sender.ns(64) == 0
    assert machine.channel(0, 0, 3) == 13.2e9
    assert machine.channel(0, 0, 7) == 5.8e9
    assert machine.channel(0, 2, 2) == inf


def test_fewer_sockets_are_a_smaller_machine() -> None:
    assert server_b(sockets=2).cores == 16
    assert server_b(sockets=2).sockets() == (Place(0, 0, 8), Place(0, 1, 8))


def test_workers_are_places_of_one_core() -> None:
    machine = cluster(2, sockets=2, cores=2)
    assert [(p.node, p.socket, p.cores) for p in machine.workers(per_node=3)] == [
        (0, 0, 1),
        (0, 0, 1),
        (0, 1, 1),
        (1, 0, 1),
        (1, 0, 1),
        (1, 1, 1),
    ]
    assert len(machine.workers()) == 8


def test_each_boundary_has_its_own_cost() -> None:
    def costing(ns: float) -> Crossing:
        return Crossing(Cost(record_ns=ns), Cost(record_ns=2 * ns))

    machine = cluster(
        2,
        sockets=2,
        cores=2,
        same_socket=costing(1),
        other_socket=costing(2),
        other_node=costing(3),
    )
    places = machine.workers()
    found = [machine.crossing(0, other, places).sender.record_ns for other in range(5)]
    assert found == [0, 1, 2, 2, 3]


@pytest.mark.parametrize("machine", [server_a(), server_b(), cluster(3, 2, 4, 10e9)])
def test_a_machine_comes_back_from_its_file(machine: Machine, tmp_path: Path) -> None:
    machine.save(tmp_path / "machine.json")
    assert Machine.load(tmp_path / "machine.json") == machine
    assert "Infinity" not in (tmp_path / "machine.json").read_text()


def test_distances_without_costs_are_refused() -> None:
    two = (Socket((0,)), Socket((1,)))
    with pytest.raises(ValueError, match="sockets at distance 1, but there are costs for 0"):
        Machine("m", (Node("n", two, ((0, 1), (1, 0))),))
    with pytest.raises(ValueError, match="2 sockets; its distances must be 2 rows of 2"):
        Machine("m", (Node("n", two),))


def test_the_records_of_a_jumbo_share_its_message() -> None:
    cost = Cost(record_ns=10, message_ns=1280)
    assert cost.ns(0, jumbo_records=64) == 30
    assert cost.ns(0) == 20  # a typical one has 128


def test_what_is_encoded_costs_what_its_profile_says_or_else_the_machine() -> None:
    crossing = Crossing(Cost(10), Cost(20), encode=Cost(100), decode=Cost(200))
    assert crossing.send_ns(50) == 110
    assert crossing.receive_ns(50) == 220
    jumbo = Jumbo(encode_ns=1, decode_ns=2, records=128)
    assert crossing.send_ns(50, jumbo) == 11
    assert crossing.receive_ns(50, jumbo) == 22


def test_what_goes_by_reference_is_not_encoded() -> None:
    jumbo = Jumbo(encode_ns=1000, decode_ns=1000, records=128)
    assert Crossing(Cost(10), Cost(20)).send_ns(50, jumbo) == 10


def test_codecs_are_kept_in_the_file(tmp_path: Path) -> None:
    crossing = Crossing(Cost(1), Cost(message_ns=2), encode=Cost(3), decode=Cost(4))
    machine = cluster(2, same_socket=crossing)
    machine.save(tmp_path / "machine.json")
    assert Machine.load(tmp_path / "machine.json") == machine


def test_the_speed_of_the_cores_is_kept_in_the_file(tmp_path: Path) -> None:
    machine = replace(cluster(2), yardstick_ns=287.5)
    machine.save(tmp_path / "machine.json")
    assert Machine.load(tmp_path / "machine.json") == machine
