"""Near rows: neighbours of each row for the detail that inducing inputs leave out."""
