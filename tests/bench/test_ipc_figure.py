"""The figure knows every variant that is measured."""

import ipc
from ipc_peers.figure import COLORS


def test_every_variant_has_a_colour() -> None:
    assert {variant.key for variant in ipc.VARIANTS} <= set(COLORS)
