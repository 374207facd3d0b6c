"""What plans are judged by: machine, profile, how records flow, and what a plan then does."""
