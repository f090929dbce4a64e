"""Where arrays live, how many threads compute, what a device reports, how long work is shown and stopped."""
