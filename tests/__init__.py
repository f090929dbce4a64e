"""A package, so that no other one named ``tests`` is found in its place."""
