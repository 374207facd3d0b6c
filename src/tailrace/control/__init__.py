"""The coordinator in the driver, the shell around each worker, and what they tell each other."""
