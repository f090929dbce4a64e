"""Processes in a fixed basis of sines on a box: one pass makes sums, which all else needs."""
