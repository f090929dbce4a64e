"""Groups of ranks: threads, MPI, NCCL."""
