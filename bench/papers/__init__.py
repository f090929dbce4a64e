"""The papers' tables: their cells, and how they are run and rendered. See ``reproduce.py``."""
