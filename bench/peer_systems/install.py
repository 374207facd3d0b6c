"""Installs the peer systems, each into a virtual environment of its own under build/peers.

    python bench/peer_systems/install.py

What cannot be installed is named, with the reason, and left out by the benchmark.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

ENVIRONMENTS = Path(__file__).resolve().parents[2] / "build" / "peers"
REQUIREMENTS = {
    "bytewax": ("bytewax==0.21.1",),
    "flink": ("apache-flink==2.3.0",),
    # The Spark that Tailrace runs on; Arrow comes with Tailrace, pandas 3 is too new for Spark.
    "spark": (
        f"pyspark=={version('pyspark')}",
        f"pyarrow=={version('pyarrow')}",
        "pandas>=2,<3",
        "protobuf>=5",
    ),
}
# Built from source these take an hour and fail; another Python is then the better try.
WHEELS_ONLY = "bytewax,apache-flink,pemja,pyarrow,pandas,numpy"
PYTHONS = ("3.12", "3.11")
"""Tried in this order after the Python that runs this."""
TIMEOUT_S = 1_800


def python_of(name: str) -> Path:
    """The interpreter of a peer's environment."""
    return ENVIRONMENTS / name / "bin" / "python"


def why_missing(name: str) -> str | None:
    """None if the peer is installed, or the reason."""
    if _stamp(name).exists():
        return None
    reason = _reason(name)
    if reason.exists():
        return f"could not be installed: {reason.read_text().strip()}"
    return "not installed; run: make bench-peers"


def _stamp(name: str) -> Path:
    return ENVIRONMENTS / name / "installed"


def _reason(name: str) -> Path:
    return ENVIRONMENTS / f"{name}.reason"


def install(name: str, requirements: Sequence[str]) -> str | None:
    """Install one peer with the first Python that can; return why none can."""
    stamp, text = _stamp(name), "\n".join(requirements)
    if stamp.exists() and stamp.read_text() == text:
        return None
    others = (
        PYTHONS if shutil.which("uv") else filter(shutil.which, (f"python{v}" for v in PYTHONS))
    )
    problem = ""
    for python in (sys.executable, *others):
        print(f"installing {text.replace(chr(10), ', ')} with {python} ...", flush=True)
        shutil.rmtree(ENVIRONMENTS / name, ignore_errors=True)
        problem = _attempt(name, python, requirements)
        if not problem:
            stamp.write_text(text)
            _reason(name).unlink(missing_ok=True)
            return None
    _reason(name).write_text(problem)
    return problem


def _attempt(name: str, python: str, requirements: Sequence[str]) -> str:
    """Install with one Python; an empty answer is success, else it is the problem."""
    folder = str(ENVIRONMENTS / name)
    wheels = f"--only-binary={WHEELS_ONLY}"
    inside = str(python_of(name))
    if uv := shutil.which("uv"):
        commands = [
            [uv, "venv", "--quiet", "--python", python, folder],
            [uv, "pip", "install", "--quiet", "--python", inside]
            + [f"--only-binary={package}" for package in WHEELS_ONLY.split(",")]
            + [*requirements],
        ]
    else:
        pip = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        commands = [[python, "-m", "venv", folder], [*pip, wheels, *requirements]]
    ours = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for command in commands:
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=TIMEOUT_S, env=ours
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            errors = [line for line in lines if line.lower().startswith("error")]
            return (errors or lines or [f"ended with code {done.returncode}"])[-1].strip()
    return ""


def main() -> None:
    """Install all that can be installed."""
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    for name, requirements in REQUIREMENTS.items():
        if problem := install(name, requirements):
            print(f"{name} is left out: {problem}", file=sys.stderr)


if __name__ == "__main__":
    main()
