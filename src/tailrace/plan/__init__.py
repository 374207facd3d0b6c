"""Who runs where: machine, profile, performance model, plans, one file per scheduler. No I/O."""
