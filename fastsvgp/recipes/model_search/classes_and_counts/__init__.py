"""The search for models of classes and counts: posteriors by natural steps, in place of collapsed ones."""
