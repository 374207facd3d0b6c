"""The planner's edge to the world: what it needs is measured, jobs are planned and replanned."""
