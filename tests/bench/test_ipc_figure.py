"""The figure knows every variant that is measured."""

import ipc


def test_every_variant_has_a_colour() -> None:
    # What draws takes a second to import, and all processes import all tests.
    from ipc_peers.figure import COLORS

    assert {variant.key for variant in ipc.VARIANTS} <= set(COLORS)
