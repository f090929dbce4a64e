"""Natural-gradient steps, and their backtracking."""
