"""Inputs that are uncertain: exact moments of predictions at normal inputs."""
