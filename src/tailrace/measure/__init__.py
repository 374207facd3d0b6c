"""What the planner needs to know, measured: the machine, its transport, and operators."""
