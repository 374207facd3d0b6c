"""Whether to change a running job: what a change costs and brings, and who decides. Pure."""
