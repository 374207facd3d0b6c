"""Short tails: policies that say when and where to send, by what was measured. No I/O."""
