"""The search for a model: candidates race, held-out rows decide."""
