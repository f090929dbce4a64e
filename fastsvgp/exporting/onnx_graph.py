"""Print a description as an ONNX graph, in float64 or float32.

A vector of the description is a tensor (N, size), and a term of a sum over j one (N, size, columns)
until it is summed. A quantile has the axis of levels in front. ONNX has no error codes: rows and
levels that the C file refuses are NaN. Runtimes have Erf in float32 alone, and no log1p or expm1,
so ``COMPOSED`` builds these of what they have.
"""

import ast

import numpy as np

from ..runtime.extras import install_hint
from .special import SPECIAL, Special
from .steps import HALVINGS, OPERAND, PRODUCT, Each, Join, Pick, Root, Sums, Table

OPSET, IR = 18, 8
LARGEST = 2**31 - 2**20  # bytes of a protocol buffer, and what is left for the nodes
LEVELS = 0.05, 0.5, 0.95  # unless the caller gives others
OPERATORS = {
    ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.Div: "Div", ast.USub: "Neg",
    ast.Lt: "Less", ast.Gt: "Greater", ast.Eq: "Equal",
}  # fmt: skip
CALLS = {
    "cos": "Cos", "exp": "Exp", "fabs": "Abs", "fmax": "Max", "fmin": "Min", "log": "Log",
    "rint": "Round", "sin": "Sin", "sqrt": "Sqrt", "tanh": "Tanh",
}  # fmt: skip
COMPOSED = SPECIAL | {
    "erfc": Special(
        ("z",),
        {"tail": "exp(-z * z) * erfcx(fabs(z))"},
        "choose(z < 0.0, 2.0 - tail, tail)",
    ),
    "log1p": Special(  # Kahan's form: the rounding of u cancels
        ("z",),
        {"u": "1.0 + z", "near": "z * log(u) / (u - 1.0)"},
        "choose(u > 2.0, log(u), choose(u == 1.0, z, near))",
    ),
    "expm1": Special(
        ("z",),
        {"u": "exp(z)", "near": "z * (u - 1.0) / log(u)"},
        "choose(fabs(z) > 0.5, u - 1.0, choose(u == 1.0, z, near))",
    ),
}


def model(description, stem, dtype):
    """Return the bytes of the file; ``stem`` names the graph.

    Raises
    ------
    ImportError
        The package onnx is not installed.
    ValueError
        The arrays do not fit into one file.
    """
    try:
        import onnx
    except ImportError as error:
        raise ImportError(
            f"export: a .onnx file needs the package onnx: {install_hint('onnx')}"
        ) from error
    bytes_ = sum(one.size for one in description.arrays.values()) * np.dtype(dtype).itemsize
    if bytes_ > LARGEST:
        raise ValueError(
            f"export: a .onnx file holds 2 GiB, and the arrays take {bytes_ / 2**30:.1f} GiB; write"
            " .py, whose arrays are in a .npz file"
        )
    graph = Graph(onnx, dtype)
    x, helper = "X", onnx.helper
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    f = _apply(graph, description.f, {"x": x})
    bad = _bad_rows(graph, description, x)
    moments = _apply(graph, description.y, dict(zip("mv", f, strict=True)))
    rows = ["N", *description.outputs]
    axis, shapes = 0 if description.outputs else 1, {"mean": rows, "var": rows}
    found = dict(zip(shapes, moments, strict=True))
    inputs = [helper.make_tensor_value_info(x, kind, ["N", description.columns])]
    if description.quantile is not None:
        levels = graph.keep("levels", np.array(LEVELS, dtype))
        inputs.append(helper.make_tensor_value_info(levels, kind, ["K"]))
        column = graph.add("Unsqueeze", levels, graph.whole([1, 2]))
        given = {"m": f[0], "v": f[1], "level": column}
        (quantile,) = _apply(graph, description.quantile, given)
        inside = (graph.add("Greater", column, graph.real(0.0)),
                  graph.add("Less", column, graph.real(1.0)))  # fmt: skip
        bad_level = graph.add("Not", graph.add("And", *inside))
        found["quantiles"] = graph.add("Where", bad_level, graph.real(np.nan), quantile)
        shapes["quantiles"] = ["K", *rows]
    for name, value in found.items():
        value = graph.add("Where", bad, graph.real(np.nan), value)
        squeezed = axis + (name == "quantiles")
        given = (value,) if description.outputs else (value, graph.whole([squeezed]))
        graph.output(name, "Identity" if description.outputs else "Squeeze", *given)
    outputs = [helper.make_tensor_value_info(name, kind, dims) for name, dims in shapes.items()]
    made = helper.make_model(
        helper.make_graph(graph.nodes, stem, inputs, outputs, graph.tensors()),
        producer_name="fastsvgp",
        doc_string=f"{description.about}. Written by fastsvgp.",
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR,
    )
    about = {"inputs": description.inputs, "classes": description.classes}
    helper.set_model_props(made, {name: "\n".join(one) for name, one in about.items() if one})
    return made.SerializeToString()


def _bad_rows(graph, description, x):
    """Return whether a row (N, 1) has an input that is not finite, or no code."""
    bad = graph.add("Or", graph.add("IsNaN", x), graph.add("IsInf", x))
    zero, codes = graph.real(0.0), description.codes
    if codes:
        D = description.columns
        is_code = graph.constant(np.isin(np.arange(D), list(codes)))
        most = np.full(D, np.inf)
        for column, levels in codes.items():
            most[column] = np.inf if levels is None else levels - 1
        whole = graph.add("Equal", x, graph.add("Round", x))
        wrong = graph.add("Or", graph.add("Less", x, zero), graph.add("Not", whole))
        wrong = graph.add("Or", wrong, graph.add("Greater", x, graph.real(most)))
        bad = graph.add("Or", bad, graph.add("And", is_code, wrong))
    count = graph.add("ReduceSum", graph.add("Cast", bad, to=graph.kind), graph.whole([1]))
    return graph.add("Greater", count, zero)


class Graph:
    """Nodes, each once, and constants; ``outer`` is the graph around the body of a loop."""

    def __init__(self, onnx, dtype, outer=None):
        self.onnx, self.dtype, self.outer = onnx, np.dtype(dtype), outer
        self.kind = onnx.helper.np_dtype_to_tensor_dtype(self.dtype)
        self.nodes, self._known = [], {}
        self._arrays, self._count = ({}, [0]) if outer is None else (outer._arrays, outer._count)

    def name(self):
        """Return a name that is not in use."""
        self._count[0] += 1
        return f"v{self._count[0]}"

    def add(self, op, *inputs, **attributes):
        """Return the name of the result of a node."""
        key = op, inputs, tuple(attributes.items())
        graph = self
        while graph is not None:
            if key in graph._known:
                return graph._known[key]
            graph = graph.outer
        self._known[key] = name = self.name()
        self.output(name, op, *inputs, **attributes)
        return name

    def output(self, name, op, *inputs, **attributes):
        """Add a node whose result has this name."""
        self.nodes.append(self.onnx.helper.make_node(op, inputs, [name], **attributes))

    def constant(self, array):
        """Return the name of a constant."""
        key = array.tobytes(), array.dtype.str, array.shape
        if key not in self._arrays:
            self._arrays[key] = self.name(), array
        return self._arrays[key][0]

    def keep(self, name, array):
        """Make ``array`` the value of ``name`` unless the caller gives another."""
        self._arrays[name] = name, array
        return name

    def real(self, value):
        """Return a constant in the dtype of the graph: finite, and not 0, if ``value`` is so."""
        value, limits = np.asarray(value, np.float64), np.finfo(self.dtype)
        size = np.clip(np.abs(value), float(limits.tiny), float(limits.max))
        exact = (value == 0) | ~np.isfinite(value)
        return self.constant(np.where(exact, value, np.copysign(size, value)).astype(self.dtype))

    def whole(self, values):
        """Return a constant of integers."""
        return self.constant(np.asarray(values, np.int64))

    def tensors(self):
        """Return the constants, as the file holds them."""
        return [self.onnx.numpy_helper.from_array(one, name) for name, one in self._arrays.values()]


# --- expressions ----------------------------------------------------------------------------------


def _apply(graph, function, given):
    """Write the nodes of a function; return the names of its results."""
    scope = Scope(graph, function, dict(given))
    for step in function.steps:
        PRINT[type(step)](scope, step)
    return [scope.values[one] for one in function.results]


class Scope:
    """The vectors of a function by their names, and the values of expressions of them."""

    def __init__(self, graph, function, values):
        self.graph, self.function, self.values = graph, function, values

    def within(self, graph, **values):
        """Return the scope of a graph inside this one."""
        return Scope(graph, self.function, self.values | values)

    def entries(self, name, index):
        """Return an operand where i and j are the last axis."""
        if name in self.values:
            return self.values[name]
        return self.graph.real(self.function.constants.arrays[name])

    def terms(self, name, index):
        """Return an operand where i and j are the last two axes."""
        if name in self.values:
            return self.graph.add(
                "Unsqueeze", self.values[name], self.graph.whole([1 if index == "j" else 2])
            )
        array = self.function.constants.arrays[name]
        return self.graph.real(array if index in ("ij", "j") else array[:, None])

    def evaluate(self, text, operand):
        """Return the value of an expression."""
        return self._number(ast.parse(text, mode="eval").body, operand, {})

    def _number(self, node, operand, local):
        value = self._value(node, operand, local)
        if isinstance(node, ast.Compare):
            return self.graph.add("Cast", value, to=self.graph.kind)
        return value

    def _value(self, node, operand, local):
        def value(one):
            return self._number(one, operand, local)

        add = self.graph.add
        match node:
            case ast.Constant():
                return self.graph.real(node.value)
            case ast.Name(id="INFINITY"):
                return self.graph.real(np.inf)
            case ast.Name():
                return local[node.id] if node.id in local else operand(*_operand(node.id))
            case ast.UnaryOp():
                return add(OPERATORS[type(node.op)], value(node.operand))
            case ast.BinOp():
                return add(OPERATORS[type(node.op)], value(node.left), value(node.right))
            case ast.Compare(ops=[ast.NotEq()]):
                return add("Not", add("Equal", value(node.left), value(node.comparators[0])))
            case ast.Compare():
                return add(
                    OPERATORS[type(node.ops[0])], value(node.left), value(node.comparators[0])
                )
        name = node.func.id
        if name == "choose":
            test = self._value(node.args[0], operand, local)
            return add("Where", test, *map(value, node.args[1:]))
        arguments = [value(one) for one in node.args]
        if name in CALLS:
            return add(CALLS[name], *arguments)
        own = dict(zip(COMPOSED[name].arguments, arguments, strict=True))
        for key, text in COMPOSED[name].local.items():
            own[key] = self._number(ast.parse(text, mode="eval").body, operand, own)
        return self._number(ast.parse(COMPOSED[name].result, mode="eval").body, operand, own)


def _operand(name):
    return OPERAND.fullmatch(name).groups()


# --- steps ----------------------------------------------------------------------------------------


def _each(scope, step):
    value = scope.evaluate(step.text, scope.entries)
    sizes, graph = scope.function.sizes, scope.graph
    used = {index for name, index in OPERAND.findall(step.text) if name in sizes}
    if not used or (step.size > 1 and "i" not in used):  # the value lacks an axis
        rows = graph.add("Shape", scope.values[next(iter(scope.function.arguments))], end=1)
        value = graph.add(
            "Expand", value, graph.add("Concat", rows, graph.whole([step.size]), axis=0)
        )
    scope.values[step.name] = value


def _sums(scope, step):
    graph = scope.graph
    if product := PRODUCT.fullmatch(step.text):
        W, x = product.groups()
        W = graph.real(scope.function.constants.arrays[W])
        value = graph.add("Gemm", scope.values[x], W, transB=1)
    else:
        op = "ReduceMax" if step.largest else "ReduceSum"
        terms = scope.evaluate(step.text, scope.terms)
        value = graph.add(op, terms, graph.whole([2]), keepdims=0)
    scope.values[step.name] = value


def _pick(scope, step):
    columns = scope.graph.whole(step.columns)
    scope.values[step.name] = scope.graph.add("Gather", scope.values[step.source], columns, axis=1)


def _join(scope, step):
    parts = (scope.values[one] for one in step.sources)
    scope.values[step.name] = scope.graph.add("Concat", *parts, axis=1)


def _table(scope, step):
    # the line of the last knot that is not above x; 0 <= the share of it <= 1
    graph, arrays, d = scope.graph, scope.function.constants.arrays, step.column
    knots, values = arrays[step.knots], arrays[step.values]
    x = graph.add("Gather", scope.values[step.source], graph.whole([d]), axis=1)
    x = graph.add("Min", graph.add("Max", x, graph.real(knots[0])), graph.real(knots[-1]))
    below = graph.add("Not", graph.add("Less", x, graph.real(knots[1:-1])))
    count = graph.add("Cast", below, to=graph.onnx.TensorProto.INT64)
    low = graph.add("ReduceSum", count, graph.whole([1]))  # of knots inside, so not the last
    start, value, slope = (
        graph.add("Gather", graph.real(one), low, axis=0)
        for one in (knots[:-1], values[:-1], np.diff(values) / np.diff(knots))
    )
    value = graph.add("Add", value, graph.add("Mul", slope, graph.add("Sub", x, start)))
    name = step.name
    here = graph.constant(np.arange(scope.function.sizes[name]) == d)
    scope.values[name] = graph.add("Where", here, value, scope.values[name])


def _root(scope, step):
    graph = scope.graph
    make = graph.onnx.helper.make_tensor_value_info
    truth, whole = graph.onnx.TensorProto.BOOL, graph.onnx.TensorProto.INT64
    high = scope.evaluate(step.high, scope.entries)
    body = Graph(graph.onnx, graph.dtype, graph)
    turn, go, low_in, high_in = (body.name() for _ in range(4))
    middle = body.add("Mul", body.real(0.5), body.add("Add", low_in, high_in))
    inside = scope.within(body, **{step.name: middle})
    below = body.add("Less", inside.evaluate(step.text, inside.entries), body.real(0.0))
    after = [
        body.add("Identity", go),
        body.add("Where", below, middle, low_in),
        body.add("Where", below, high_in, middle),
    ]
    kinds = truth, graph.kind, graph.kind
    given = [make(turn, whole, []), *map(make, (go, low_in, high_in), kinds, ([], None, None))]
    results = list(map(make, after, kinds, ([], None, None)))
    loop = graph.onnx.helper.make_graph(body.nodes, "halve", given, results)
    turns, always = graph.whole(HALVINGS), graph.constant(np.array(True))
    low, high_out = graph.name(), graph.name()
    start = graph.add("Sub", high, high)
    graph.nodes.append(
        graph.onnx.helper.make_node(
            "Loop", [turns, always, start, high], [low, high_out], body=loop
        )
    )
    total = graph.add("Add", low, high_out)
    scope.values[step.name] = graph.add("Mul", graph.real(0.5), total)


PRINT = {Each: _each, Sums: _sums, Pick: _pick, Join: _join, Table: _table, Root: _root}
