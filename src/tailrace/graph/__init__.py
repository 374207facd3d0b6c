"""A topology as data: operators, streams, groupings, and what they expand to. No I/O."""
