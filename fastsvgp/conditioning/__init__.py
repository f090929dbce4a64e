"""New data without the old: q(u) so far is the prior of the new rows."""
