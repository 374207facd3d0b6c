"""Moving messages: by reference in a process, by ring on a node, by TCP between nodes."""
