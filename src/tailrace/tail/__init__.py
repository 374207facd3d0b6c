"""Short tails of shuffled streams: who gets the next record, and when that is decided. No I/O."""
