"""Bounds and predictions inside other people's programs: ``fastsvgp.interop.torch``, ``fastsvgp.interop.jax``.

Each module imports its own library, and is imported by name: ``import fastsvgp`` loads neither.
"""
