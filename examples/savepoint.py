"""Stop a job with a savepoint, and go on from it with a new version of the program.

The second version has other numbers of instances, and keeps more for each page than the first did:
`migrate` makes a new state of an old one. `python examples/savepoint.py`
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import tailrace as tr

# (page, seconds) of each visit; in two shares, so that later two instances can have one each.
VISITS = tr.sources.rate(2_000, lambda i: (f"page {i % 4}", i % 10), count=6_000, shares=2)


def first(results: Path) -> tr.Topology:
    """How many visits each page has had."""
    topology = tr.Topology("visits")
    pages = topology.source(VISITS, name="visits").key_by(lambda visit: visit[0])
    counts = pages.fold(lambda count, visit: count + 1, initial=0, name="pages")
    counts.sink(tr.sinks.text(results))
    return topology


def second(results: Path) -> tr.Topology:
    """How many, and for how many seconds; of visits before the change that is not known."""
    topology = tr.Topology("visits")
    visits = topology.source(VISITS, name="visits", parallelism=2)
    pages = visits.key_by(lambda visit: visit[0]).fold(
        lambda page, visit: (page[0] + 1, page[1] + visit[1]),
        initial=(0, 0),
        name="pages",  # the name by which the state is found
        parallelism=2,
        state_version=1,
        migrate=lambda page, count, version: (count, 0),
    )
    pages.sink(tr.sinks.text(results))
    return topology


if __name__ == "__main__":
    spark = tr.local_spark(2)
    with TemporaryDirectory() as folder:
        kept, saved, results = (Path(folder, name) for name in ("kept", "saved", "results"))
        job = first(results).start(spark, checkpoint=kept)
        while job.last_progress.emitted.get("visits", 0) < 2_000:
            time.sleep(0.05)
        job.stop(savepoint=saved)
        print(f"stopped after {job.last_progress.emitted['visits']} visits")
        second(results).start(spark, restore=saved).await_termination()
        for file in sorted(results.iterdir()):
            print(file.read_text(), end="")
