"""Words counted as they are typed: `nc -lk 9999` in one terminal, this in another.

The source waits on its socket and connects again when the server goes away and comes back.
"""

import tailrace as tr
from tailrace import sinks, sources

HOST, PORT = "127.0.0.1", 9999

topology = tr.Topology("words from a socket")
(
    topology.source(sources.socket(HOST, PORT))
    .flat_map(str.split)
    .key_by(str.lower)
    .scan(lambda count, word: (count or 0) + 1, parallelism=2)
    .sink(sinks.console(per_s=50, format=lambda pair: f"{pair[0]}: {pair[1]}"))
)

if __name__ == "__main__":
    job = topology.start(tr.local_spark(2))
    print(f"waiting for lines from {HOST}:{PORT}; Ctrl-C ends it")
    try:
        job.await_termination()
    except KeyboardInterrupt:
        job.stop()
