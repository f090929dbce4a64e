"""The search for a model: candidates are trained in turn and compared on held-out rows."""
