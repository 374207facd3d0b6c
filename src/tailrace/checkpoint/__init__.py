"""What survives: epochs of a job in a folder, who may write there, and how to read it again."""
