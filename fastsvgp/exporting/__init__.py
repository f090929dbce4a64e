"""Export of a trained model: one C file, Python that needs NumPy alone, or an ONNX graph.

``description`` turns a model into three functions of a row, each a list of steps (``steps``).
``c_source``, ``python_source`` and ``onnx_graph`` print them: a formula is written once, for all.
"""
