"""How ``fit`` interprets its arguments for each kind of model."""
