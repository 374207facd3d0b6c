"""Spark's part: it places the workers, ships the code, and is the way in and out for data."""
