"""Under the HTTP API: open indexes, queues and batches, the writer, worker processes, metrics and logs."""
