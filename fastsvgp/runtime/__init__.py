"""Process-wide services: devices, threads, deferred checks, memory messages, progress, signals."""
