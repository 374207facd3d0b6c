"""Moving messages between processes: by ring on a node, by TCP between nodes."""
