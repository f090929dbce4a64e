"""Newton-Schulz updates of the factor of an inverse, and when to stop them."""
