"""The C of the ring alone: plain, and under each sanitizer in a short form of `make sanitize`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("ring_stress.c")
HEADERS = Path(__file__).parents[2] / "src/tailrace/transport"
PLAIN = ["-DMESSAGES=5000", "-DHURRIED=2500"]
SANITIZED = ["-DMESSAGES=2000"]
"""Of each writer in each race: `make sanitize` has 20,000. With 1,000 in a hurry, a position that
is taken without a compare-and-swap was found only every other time."""


def build(program: Path, *options: str) -> None:
    strict = ["-std=c11", "-Wall", "-Wextra", "-Wno-tsan", "-pthread", f"-I{HEADERS}"]
    subprocess.run(
        [os.environ.get("CC", "cc"), *strict, *options, str(SOURCE), "-o", str(program)], check=True
    )


@pytest.mark.parametrize("position_bits", [35, 14])
@pytest.mark.parametrize("warm_bytes", [256 << 10, 512])
def test_every_outcome_of_the_races_is_acceptable(
    tmp_path: Path, position_bits: int, warm_bytes: int
) -> None:
    program = tmp_path / "ring_stress"
    sizes = [f"-DRING_POSITION_BITS={position_bits}", f"-DRING_WARM_BYTES={warm_bytes}"]
    build(program, "-O2", "-Werror", *sizes, *PLAIN)
    subprocess.run([str(program), str(position_bits)], check=True)


@pytest.mark.parametrize("sanitizer", ["thread", "address", "undefined"])
def test_no_sanitizer_finds_anything(tmp_path: Path, sanitizer: str) -> None:
    """With the positions coming round, and a ring that starts over: its rarest paths."""
    empty, program = tmp_path / "empty", tmp_path / "ring_stress"
    option = f"-fsanitize={sanitizer}"
    tried = subprocess.run(
        [os.environ.get("CC", "cc"), option, "-x", "c", "-", "-o", str(empty)],
        input="int main(void) { return 0; }",
        text=True,
        capture_output=True,
        check=False,
    )
    if tried.returncode or subprocess.run([str(empty)], check=False).returncode:
        pytest.skip(f"this compiler has no {sanitizer} sanitizer: {tried.stderr.strip()[-200:]}")
    sizes = ["-DRING_POSITION_BITS=14", "-DRING_WARM_BYTES=512"]
    build(program, "-O1", "-g", option, "-fno-sanitize-recover=all", *sizes, *SANITIZED)
    subprocess.run([str(program), "1"], check=True)
