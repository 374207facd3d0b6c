"""What runs inside a worker: instances, their queues and outputs, flow control, metrics."""
