"""The C of the ring alone, without sanitizers; `make sanitize` runs the same with them."""

import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("ring_stress.c")
HEADERS = Path(__file__).parents[2] / "src/tailrace/transport"


@pytest.mark.parametrize("position_bits", [35, 14])
@pytest.mark.parametrize("warm_bytes", [256 << 10, 512])
def test_every_outcome_of_the_races_is_acceptable(
    tmp_path: Path, position_bits: int, warm_bytes: int
) -> None:
    program = tmp_path / "ring_stress"
    options = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]
    options += [f"-DRING_POSITION_BITS={position_bits}", f"-DRING_WARM_BYTES={warm_bytes}"]
    subprocess.run(["cc", *options, f"-I{HEADERS}", str(SOURCE), "-o", str(program)], check=True)
    for seed in ("1", "2", "3"):
        subprocess.run([str(program), seed], check=True)
