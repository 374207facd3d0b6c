"""Questions to a slow service, a hundred at a time: answers in order, and none lost."""

import asyncio
import time

import tailrace as tr
from tailrace.testing import collect, run

QUESTIONS = 500
ANSWER_S = 0.02


async def ask(number: int) -> str:
    """What would be an HTTP request."""
    await asyncio.sleep(ANSWER_S)
    if number == 7:
        raise ConnectionError("the service does not like 7")
    return f"answer {number}"


topology = tr.Topology("lookups")
answers = topology.source(range(QUESTIONS)).async_map(
    ask, concurrency=100, timeout_s=5, on_error="dead letter"
)

if __name__ == "__main__":
    found, failed = collect(answers), collect(answers.dead_letters())
    started_s = time.monotonic()
    run(topology)
    took_s = time.monotonic() - started_s
    print(f"{len(found)} answers, from {found[0]!r} to {found[-1]!r}, in {took_s:.2f} s")
    print(f"one after the other they would have taken {QUESTIONS * ANSWER_S:.1f} s")
    print(f"failed: {failed}")
