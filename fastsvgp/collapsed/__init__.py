"""SGPR and SOLVE-GP with q(u) at its optimum: collapsed bounds."""
