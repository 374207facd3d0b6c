"""Classes of a program's own are found by name where its topology has been loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from dataclasses import dataclass
from pathlib import Path
from pyspark import cloudpickle

@dataclass
class Total:
    n: int

    class Inner:
        pass

class taken:
    pass

def make(n):
    return Total(n), Total.Inner(), taken()

Path(sys.argv[1]).write_bytes(cloudpickle.dumps(make))
"""
WORKER = """
import pickle, sys
from pathlib import Path
from tailrace.control.mains import load_job

taken = "by the worker itself"
make = load_job(Path(sys.argv[1]).read_bytes())
total, inner, _ = make(3)
assert type(pickle.loads(pickle.dumps(inner))) is type(inner)
assert taken == "by the worker itself"
Path(sys.argv[2]).write_bytes(pickle.dumps(total))
"""
ANOTHER = """
import pickle, sys
from pathlib import Path
from tailrace.control.mains import load_job

load_job(Path(sys.argv[1]).read_bytes())
assert pickle.loads(Path(sys.argv[2]).read_bytes()).n == 3
"""


def test_objects_of_classes_of_main_travel_from_worker_to_worker(tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("job", "state")]
    for program in (PROGRAM, WORKER, ANOTHER):
        subprocess.run([sys.executable, "-c", program, *files], check=True)
