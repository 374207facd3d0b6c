"""The command `tailrace`: run, explain, bench, demo, warm-up, and the view of a job."""

from tailrace.cli.command import main

__all__ = ["main"]
