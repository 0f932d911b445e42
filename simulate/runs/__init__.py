"""What long work stands on: a journal of finished parts, files, the identity of a computation, workers."""
