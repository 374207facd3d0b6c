"""One file per scheduler; `by_name` has them all."""
