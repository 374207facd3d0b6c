"""Applications that the papers measure; each doubles as an example."""
