"""The C of the ring alone, without sanitizers; `make sanitize` runs the same with them."""

import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("ring_stress.c")
HEADERS = Path(__file__).parents[2] / "src/tailrace/transport"


@pytest.mark.parametrize("position_bits", [35, 14])
def test_every_outcome_of_the_races_is_acceptable(tmp_path: Path, position_bits: int) -> None:
    program = tmp_path / "ring_stress"
    options = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]
    bits = f"-DRING_POSITION_BITS={position_bits}"
    subprocess.run(
        ["cc", *options, bits, f"-I{HEADERS}", str(SOURCE), "-o", str(program)], check=True
    )
    for seed in ("1", "2", "3"):
        subprocess.run([str(program), seed], check=True)
