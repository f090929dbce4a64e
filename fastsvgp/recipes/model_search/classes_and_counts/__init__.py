"""The search for classes and counts: posteriors by natural steps instead of collapsed ones."""
