"""Short tails: who gets the next record and when, what is sent again; by what was measured."""
