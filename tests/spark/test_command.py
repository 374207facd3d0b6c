"""The command `tailrace run` as a process of its own, and how signals end it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from threading import Timer

import pytest

from tests.spark.standalone import quick_submit

PATIENCE_S = 120
COMMAND = "from tailrace.cli.command import main; raise SystemExit(main())"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "term"])
def test_a_signal_drains_the_job_and_the_summary_is_told(number: signal.Signals) -> None:
    topology = "tailrace.apps.word_count:topology"
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, "run", topology, "--master", "local[2]"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": quick_submit()},
        # Whoever runs the tests in the background has it ignored.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stderr is not None
        said = ""
        deadline = Timer(PATIENCE_S, process.kill)
        deadline.start()
        for line in process.stderr:
            said += line
            if "workers run after" in line:
                process.send_signal(number)
                break
        out, err = process.communicate()
        deadline.cancel()
    assert process.returncode == 130, said + err
    assert "stopping: what is under way runs out first" in err
    assert "nothing lost, nothing twice" in out
    assert "Exception" not in err
    assert "TaskKilled" not in err


def test_a_run_with_checkpoints_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    (tmp_path / "users_own.py").write_text(
        "import tailrace as tr\n"
        "topology = tr.Topology('numbers')\n"
        "numbers = topology.source(tr.sources.rate(2000, count=1500), name='numbers')\n"
        "sums = numbers.key_by(lambda n: 0).fold(lambda sum, n: sum + n, initial=0)\n"
        "sums.sink(tr.sinks.text('results'))\n"
    )
    said = []
    for seconds in (0.3, 60):
        arguments = ["--checkpoint", "kept", "--checkpoint-every", "0.1", "--seconds", str(seconds)]
        ran = subprocess.run(
            [sys.executable, "-c", COMMAND, "run", "users_own:topology", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert ran.returncode == 0, ran.stderr
        said.append([line for line in ran.stderr.splitlines() if line.startswith("going on from")])
    assert said[0] == []
    [line] = said[1]
    epoch = re.fullmatch(r"going on from epoch (\d+) in kept", line)
    assert epoch is not None
    assert int(epoch[1]) >= 1
    [results] = (tmp_path / "results").iterdir()
    assert results.read_text() == f"(0, {sum(range(1500))})\n"
