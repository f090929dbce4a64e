"""From files to inputs and targets."""
