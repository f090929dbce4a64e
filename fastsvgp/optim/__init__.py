"""Optimisers: natural gradients, first-order rules, schedules, and the flat vector for others."""
