"""The command `tailrace run` as a process of its own, and how signals end it."""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import partial
from threading import Timer

import pytest

PATIENCE_S = 120


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "term"])
def test_a_signal_drains_the_job_and_the_summary_is_told(number: signal.Signals) -> None:
    command = "from tailrace.cli.command import main; raise SystemExit(main())"
    topology = "tailrace.apps.word_count:topology"
    with subprocess.Popen(
        [sys.executable, "-c", command, "run", topology, "--master", "local[2]"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
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
