"""Plain twins: what each tuned CPU kernel computes, in at most 20 lines."""
