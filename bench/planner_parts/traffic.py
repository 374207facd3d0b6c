"""How much of SOL's traffic goes between nodes under a scheduler, as TurboStream sets it up."""

from tailrace.apps.sol import topology
from tailrace.plan.model.machine import cluster
from tailrace.plan.model.profile import Profile
from tailrace.plan.model.traffic import estimate, locality
from tailrace.plan.schedulers.scheduler import Scheduler

WORKERS = 8
NODES = (2, 4, 8)


def internode_fractions(scheduler: Scheduler) -> dict[int, float]:
    """By number of nodes: of all records between instances, the part that leaves its node.

    Five instances per bolt, eight workers. Records between instances of one worker count in the
    whole: with one worker per node, TurboStream's own measure (of the records that leave their
    worker) is 100 % whatever a scheduler does. Nothing is known but the topology.
    """
    graph, nothing = topology().graph, Profile({})
    traffic = estimate(graph, nothing)
    fractions = {}
    for nodes in NODES:
        machine = cluster(nodes, 1, WORKERS // nodes)
        places = machine.workers()
        plan = scheduler(graph, nothing, machine, places)
        fractions[nodes] = locality(traffic, plan.place_of, places).internode_fraction
    return fractions
