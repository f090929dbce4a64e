"""What the arguments of ``fit`` mean for each kind of model."""
