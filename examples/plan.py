"""Who runs where: ask a scheduler, read the plan, run it, and see what the running job says."""

from pathlib import Path
from tempfile import TemporaryDirectory

import tailrace as tr
from tailrace.apps.word_count import count, sentences

topology = tr.Topology("word count")
words = topology.source(tr.sources.unpaced(sentences(), seconds=3)).shuffle().flat_map(str.split)
counts = words.key_by().scan(count)
counts.sink(lambda counted: None)

if __name__ == "__main__":
    # Reads the source and runs the operators on a sample; measures this machine the first time.
    made = topology.plan(workers=2, scheduler="auto")
    print(made.explain())

    with TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        made.plan.save(path)  # to look at, to change, to keep
        spark = tr.local_spark(2)
        job = topology.start(spark, plan=path)  # or at once: start(spark, scheduler="auto")
        job.await_termination()

    table = job.traffic()
    print(f"\n{table}\n")
    by_stream = table.dataframe(spark).groupBy("stream").sum("records", "bytes")
    by_stream.show()
    rate = sum(job.last_progress.emitted.values()) / table.seconds
    print(f"expected {made.prediction.source_rate:,.0f} sentences/s, got {rate:,.0f}")
    print(job.replan())  # by what the operators cost in the job itself
