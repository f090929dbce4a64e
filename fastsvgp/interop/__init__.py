"""Bounds and predictions in other frameworks: ``fastsvgp.interop.torch``, ``fastsvgp.interop.jax``.

Each module imports its framework. Import it by name: ``import fastsvgp`` loads neither.
"""
