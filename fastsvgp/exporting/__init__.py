"""Export of a trained model as source: one C file, or Python that needs NumPy alone.

``description`` turns a model into three functions of a row, each a list of steps (``steps``).
``c_source`` and ``python_source`` print them: a formula is written once, for both languages.
"""
