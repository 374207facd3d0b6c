"""Looking for good placements: branch and bound, moves and swaps, splits of a weighted graph."""
