"""Loops of ``chevron``: four rows at a time where they have all k columns and are consecutive (or short), else row by row.

Line i of a product stands for row g of C: g = rows[i], or g = i where the rows are not ``listed``. The dense columns come as one
flat array and the distance from row to row, so that LLVM sees contiguous rows also where they are padded; vectors are (count, n)
and contiguous.

Four rows at once are four streams, which the processor does not prefetch well: 15 ms against 7 ms for (300000, 100) in float64.
So the loops ask for what comes AHEAD, one line for about every line they read (in one burst for each row it did not help).

With few columns a row is over before a loop over right-hand sides gets going, and its index arithmetic costs more than the
products: short rows keep everything in registers. With one right-hand side columns are the lanes; with more of them right-hand
sides are, four at a time, so that a number of C is read once for four products. Their numbers are ordered ``by_lanes``: entry
r k + 4 j + lane belongs to column j and right-hand side r + lane, for r a multiple of 4, and is 0 beyond count. Left to LLVM is
one right-hand side with long rows, which come one after the other: nothing is faster.
"""

import numpy as np
from numba import njit

from .lanes import add, gather, load, multiply, multiply_add, prefetch, splat, store, transposed, zeros

FAST = {"contract", "reassoc", "nsz", "arcp"}
SHORT = 32  # columns
CHAIN = 64  # columns whose products are added up one after the other: more would cost digits in float32
FLUSH = 32  # rows whose products are added up in the dtype, before they join the others in float64
AHEAD = 4096  # bytes
SOON = 16  # rows, where they are listed
TILE = 1024  # rows

# ``forceinline`` where a call would hand its registers over in memory: a quarter of the time of short rows.


@njit(nogil=True, cache=True)
def by_lanes(head, k):
    """(count, k) in the order of right-hand sides as lanes."""
    count = head.shape[0]
    weights = np.zeros((count + 3) // 4 * 4 * k, head.dtype)
    for r in range(count):
        for j in range(k):
            weights[r // 4 * 4 * k + 4 * j + r % 4] = head[r, j]
    return weights


@njit(nogil=True, cache=True, forceinline=True)
def _plus(flat, a, b, c, d, h, pa, pb, pc, pd):
    """``pa + flat[a] h`` and the like for b, c, d."""
    pa, pb = multiply_add(splat(flat, a), h, pa), multiply_add(splat(flat, b), h, pb)
    return pa, pb, multiply_add(splat(flat, c), h, pc), multiply_add(splat(flat, d), h, pd)


@njit(nogil=True, cache=True, forceinline=True)
def _chains(flat, a, b, c, d, weights, w, size, ahead):
    """Products of ``size`` numbers of four rows, in two sums for each: one would wait for its own last step."""
    pa = pb = pc = pd = qa = qb = qc = qd = zeros(flat)
    for j in range(0, size - 1, 2):
        prefetch(flat, a + ahead + 4 * j)
        h = load(weights, w + 4 * j)
        pa, pb, pc, pd = _plus(flat, a + j, b + j, c + j, d + j, h, pa, pb, pc, pd)
        h = load(weights, w + 4 * j + 4)
        qa, qb, qc, qd = _plus(flat, a + j + 1, b + j + 1, c + j + 1, d + j + 1, h, qa, qb, qc, qd)
    if size & 1:
        j = size - 1
        h = load(weights, w + 4 * j)
        pa, pb, pc, pd = _plus(flat, a + j, b + j, c + j, d + j, h, pa, pb, pc, pd)
    return add(pa, qa), add(pb, qb), add(pc, qc), add(pd, qd)


@njit(nogil=True, cache=True, forceinline=True)
def _short_chains(flat, a, b, c, d, weights, w, size):
    """The same in one sum for each: over before it has to wait."""
    pa = pb = pc = pd = zeros(flat)
    for j in range(size):
        prefetch(flat, a + AHEAD // flat.itemsize + 4 * j)
        h = load(weights, w + 4 * j)
        pa, pb, pc, pd = _plus(flat, a + j, b + j, c + j, d + j, h, pa, pb, pc, pd)
    return pa, pb, pc, pd


@njit(nogil=True, cache=True)
def _products(start, stop, flat, stride, k, diagonal, squared, weights, count, n, rest, out):
    """Rows ``start`` to ``stop``, beyond the first k and a multiple of four of them; ``squared``: with the diagonal squared."""
    for i in range(start, stop, 4):
        a = i * stride
        b, c, d = a + stride, a + 2 * stride, a + 3 * stride
        entries = load(diagonal, i - k)
        if squared:
            entries = multiply(entries, entries)
        for r in range(0, count, 4):
            if k < SHORT:
                sa, sb, sc, sd = _short_chains(flat, a, b, c, d, weights, r * k, k)
            else:
                sa = sb = sc = sd = zeros(flat)
                for j in range(0, k, CHAIN):
                    size, w, ahead = min(k - j, CHAIN), r * k + 4 * j, AHEAD // flat.itemsize + 3 * j
                    ta, tb, tc, td = _chains(flat, a + j, b + j, c + j, d + j, weights, w, size, ahead)
                    sa, sb, sc, sd = add(sa, ta), add(sb, tb), add(sc, tc), add(sd, td)
            sa, sb, sc, sd = transposed(sa, sb, sc, sd)
            at = r * n + i
            store(out, at, multiply_add(entries, load(rest, at), sa))
            if r + 1 < count:
                store(out, at + n, multiply_add(entries, load(rest, at + n), sb))
            if r + 2 < count:
                store(out, at + 2 * n, multiply_add(entries, load(rest, at + 2 * n), sc))
            if r + 3 < count:
                store(out, at + 3 * n, multiply_add(entries, load(rest, at + 3 * n), sd))


@njit(nogil=True, cache=True, forceinline=True)
def _four_products(flat, a, b, c, d, weights, k, total, ahead, step):
    """``total`` plus products of four rows of few columns with one right-hand side: columns are the lanes."""
    pa = pb = pc = pd = zeros(flat)
    for j in range(0, k - 3, 4):
        prefetch(flat, a + ahead + step * j)
        h = load(weights, j)
        pa = multiply_add(load(flat, a + j), h, pa)
        pb = multiply_add(load(flat, b + j), h, pb)
        pc = multiply_add(load(flat, c + j), h, pc)
        pd = multiply_add(load(flat, d + j), h, pd)
    pa, pb, pc, pd = transposed(pa, pb, pc, pd)
    total = add(total, add(add(pa, pb), add(pc, pd)))
    for j in range(k & ~3, k):
        total = multiply_add(gather(flat, a + j, b + j, c + j, d + j), splat(weights, j), total)
    return total


@njit(nogil=True, cache=True)
def _products_of_one(start, stop, flat, stride, k, diagonal, squared, weights, rest, out):
    """The same for one right-hand side and few columns."""
    for i in range(start, stop, 4):
        a = i * stride
        b, c, d = a + stride, a + 2 * stride, a + 3 * stride
        entries = load(diagonal, i - k)
        if squared:
            entries = multiply(entries, entries)
        total = multiply(entries, load(rest, i))
        store(out, i, _four_products(flat, a, b, c, d, weights, k, total, AHEAD // flat.itemsize, 4))


@njit(nogil=True, cache=True, forceinline=True)
def _fetch(flat, stride, k, diagonal, g):
    """Ask for a row that may be anywhere."""
    for j in range(0, k, 64 // flat.itemsize):
        prefetch(flat, g * stride + j)
    prefetch(flat, g * stride + k - 1)
    prefetch(diagonal, g - k)


@njit(nogil=True, cache=True, fastmath=FAST)
def _product(start, stop, flat, stride, k, diagonal, squared, rows, listed, head, rest, out):
    """Any rows, one by one."""
    for i in range(start, stop):
        g = rows[i] if listed else i
        if listed and i + SOON < stop:
            _fetch(flat, stride, k, diagonal, rows[i + SOON])
        row = flat[g * stride : g * stride + min(k, g + 1)]
        for r in range(head.shape[0]):
            weights = head[r, :k]
            total = flat.dtype.type(0)
            for j in range(row.size):
                total += row[j] * weights[j]
            if g >= k:
                entry = diagonal[g - k]
                total += (entry * entry if squared else entry) * rest[r, i]
            out[r, i] = total


@njit(nogil=True, cache=True)
def _listed_products_of_one(start, stop, flat, stride, k, diagonal, rows, head, rest, out):
    """One right-hand side and few columns, for rows that are listed, a multiple of four of them."""
    weights, line, to = head.reshape(k), rest.reshape(rest.size), out.reshape(out.size)
    for i in range(start, stop, 4):
        for soon in range(i + SOON, min(i + SOON + 4, stop)):
            _fetch(flat, stride, k, diagonal, rows[soon])
        a, b, c, d = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        if min(min(a, b), min(c, d)) < k:
            _product(i, i + 4, flat, stride, k, diagonal, False, rows, True, head, rest, out)
        else:
            total = multiply(gather(diagonal, a - k, b - k, c - k, d - k), load(line, i))
            a, b, c, d = a * stride, b * stride, c * stride, d * stride
            store(to, i, _four_products(flat, a, b, c, d, weights, k, total, 0, 0))  # fetched already


@njit(nogil=True, cache=True)
def rows_of_product(start, stop, flat, stride, k, diagonal, squared, rows, listed, head, weights, rest, out):
    """out[r, i] = row g of C z_r, where head[r, j] = z_r[j], in ``weights`` too, by lanes, and rest[r, i] = z_r[g].

    ``squared``: with the diagonal entries beyond the first k squared.
    """
    count, n = out.shape
    one = count == 1 and k < SHORT
    first = min(stop, start if listed else max(start, k))  # from here on rows are complete, or listed
    if not one and (listed or count == 1):
        first = stop  # row by row
    last = stop - (stop - first) % 4
    args = flat, stride, k, diagonal, squared
    _product(start, first, *args, rows, listed, head, rest, out)
    if one and listed:
        _listed_products_of_one(first, last, flat, stride, k, diagonal, rows, head, rest, out)
    elif one:
        _products_of_one(first, last, *args, head.reshape(head.size), rest.reshape(rest.size), out.reshape(out.size))
    else:
        _products(first, last, *args, weights, count, n, rest.reshape(rest.size), out.reshape(out.size))
    _product(last, stop, *args, rows, listed, head, rest, out)


# --- C' x ------------------------------------------------------------------------------------------------------------------


@njit(nogil=True, cache=True, forceinline=True)
def _add_column(flat, a, b, c, d, xa, xb, xc, xd, sums, s):
    """sums[s : s + 4] += flat[a] xa + flat[b] xb + flat[c] xc + flat[d] xd"""
    ab = multiply_add(splat(flat, a), xa, multiply(splat(flat, b), xb))
    cd = multiply_add(splat(flat, c), xc, multiply(splat(flat, d), xd))
    store(sums, s, add(load(sums, s), add(ab, cd)))


@njit(nogil=True, cache=True)
def _sums(start, stop, flat, stride, k, diagonal, x, count, n, rest, sums):
    """Rows ``start`` to ``stop``, beyond the first k and a multiple of four of them, for sums by lanes."""
    ahead, zero = AHEAD // flat.itemsize, zeros(flat)
    for i in range(start, stop, 4):
        a = i * stride
        b, c, d = a + stride, a + 2 * stride, a + 3 * stride
        for r in range(0, count, 4):
            at, s = r * n + i, r * k
            xa, xb, xc, xd = load(x, at), zero, zero, zero
            if r + 1 < count:
                xb = load(x, at + n)
            if r + 2 < count:
                xc = load(x, at + 2 * n)
            if r + 3 < count:
                xd = load(x, at + 3 * n)
            if rest.size:
                entries = load(diagonal, i - k)
                store(rest, at, multiply(entries, xa))
                if r + 1 < count:
                    store(rest, at + n, multiply(entries, xb))
                if r + 2 < count:
                    store(rest, at + 2 * n, multiply(entries, xc))
                if r + 3 < count:
                    store(rest, at + 3 * n, multiply(entries, xd))
            xa, xb, xc, xd = transposed(xa, xb, xc, xd)
            for j in range(0, k - 1, 2):
                prefetch(flat, a + ahead + 4 * j)
                _add_column(flat, a + j, b + j, c + j, d + j, xa, xb, xc, xd, sums, s + 4 * j)
                _add_column(flat, a + j + 1, b + j + 1, c + j + 1, d + j + 1, xa, xb, xc, xd, sums, s + 4 * j + 4)
            if k & 1:
                j = k - 1
                _add_column(flat, a + j, b + j, c + j, d + j, xa, xb, xc, xd, sums, s + 4 * j)


@njit(nogil=True, cache=True)
def _sums_of_one(start, stop, flat, stride, k, diagonal, x, rest, sums):
    """The same for one right-hand side and few columns, which are the lanes.

    Up to three numbers that follow a row are added up as well, in ``sums`` from entry k on, where nobody reads them.
    """
    for i in range(start, stop, 4):
        a = i * stride
        b, c, d = a + stride, a + 2 * stride, a + 3 * stride
        if rest.size:
            store(rest, i, multiply(load(diagonal, i - k), load(x, i)))
        xa, xb, xc, xd = splat(x, i), splat(x, i + 1), splat(x, i + 2), splat(x, i + 3)
        for j in range(0, k, 4):
            prefetch(flat, a + AHEAD // flat.itemsize + 4 * j)
            ab = multiply_add(load(flat, a + j), xa, multiply(load(flat, b + j), xb))
            cd = multiply_add(load(flat, c + j), xc, multiply(load(flat, d + j), xd))
            store(sums, j, add(load(sums, j), add(ab, cd)))


@njit(nogil=True, cache=True, fastmath=FAST)
def _sum(start, stop, flat, stride, k, diagonal, rows, listed, x, rest, totals):
    """Any rows, one by one."""
    for i in range(start, stop):
        g = rows[i] if listed else i
        if listed and i + SOON < stop:
            _fetch(flat, stride, k, diagonal, rows[i + SOON])
        row = flat[g * stride : g * stride + min(k, g + 1)]
        for r in range(x.shape[0]):
            xi, sums = x[r, i], totals[r]
            for j in range(row.size):
                sums[j] += row[j] * xi
            if rest.size:
                rest[r, i] = diagonal[g - k] * xi if g >= k else 0


@njit(nogil=True, cache=True)
def columns_of_product(start, stop, flat, stride, k, diagonal, rows, listed, x, rest):
    """What these rows add to the first k entries of C' x_r, in float64; rest[r, i] = C_gg x_r[i], 0 for g < k, if not empty."""
    count, n = x.shape
    totals = np.zeros((count, k))
    by_rows = listed or count == 1 and k >= SHORT
    first = stop if by_rows else min(max(start, k), stop)
    last = stop - (stop - first) % 4
    if count == 1 and first < last and (last - 1) * stride + k + 3 > flat.size:
        last -= 4  # nothing follows the last row
    _sum(start, first, flat, stride, k, diagonal, rows, listed, x, rest, totals)
    _sum(last, stop, flat, stride, k, diagonal, rows, listed, x, rest, totals)
    sums = np.zeros((count + 3) // 4 * 4 * k + 3, flat.dtype)
    wide = np.zeros(sums.size)
    lines, to = x.reshape(x.size), rest.reshape(rest.size)
    for begin in range(first, last, FLUSH):
        end = min(begin + FLUSH, last)
        if count == 1:
            _sums_of_one(begin, end, flat, stride, k, diagonal, lines, to, sums)
        else:
            _sums(begin, end, flat, stride, k, diagonal, lines, count, n, to, sums)
        for j in range(sums.size):
            wide[j] += sums[j]
            sums[j] = 0
    for r in range(count):
        for j in range(k):
            totals[r, j] += wide[j if count == 1 else r // 4 * 4 * k + 4 * j + r % 4]
    return totals


# --- the places of C in u z' ---------------------------------------------------------------------------------------------


@njit(nogil=True, cache=True)
def _outer(start, stop, k, rows, listed, u, count, n, heads, bar):
    """bar[i k + j] = sum_r u[r n + i] heads[r k + j] where row g has a column j, else 0: four rows by four columns."""
    zero = zeros(bar)
    for i in range(start, stop, 4):
        b, c, d = min(i + 1, stop - 1), min(i + 2, stop - 1), min(i + 3, stop - 1)  # the last one again, where there is no other
        for column in range(0, k, 4):
            j = min(column, k - 4)  # some columns again, where four do not divide k
            sa = sb = sc = sd = zero
            for r in range(0, count - 1, 2):
                h, at = load(heads, r * k + j), r * n
                sa, sb, sc, sd = _plus(u, at + i, at + b, at + c, at + d, h, sa, sb, sc, sd)
                h, at = load(heads, r * k + k + j), at + n
                sa, sb, sc, sd = _plus(u, at + i, at + b, at + c, at + d, h, sa, sb, sc, sd)
            if count & 1:
                r = count - 1
                h, at = load(heads, r * k + j), r * n
                sa, sb, sc, sd = _plus(u, at + i, at + b, at + c, at + d, h, sa, sb, sc, sd)
            store(bar, i * k + j, sa)
            store(bar, b * k + j, sb)
            store(bar, c * k + j, sc)
            store(bar, d * k + j, sd)
    if listed or start < k:
        for i in range(start, stop):
            for j in range((rows[i] if listed else i) + 1, k):
                bar[i * k + j] = 0


@njit(nogil=True, cache=True, fastmath=FAST)
def _outer_rows(start, stop, k, rows, listed, u, heads, bar):
    """The same, row by row."""
    for i in range(start, stop):
        width = min(k, (rows[i] if listed else i) + 1)
        row = bar[i * k : i * k + k]
        for j in range(width if u.shape[0] else 0, k):
            row[j] = 0
        for r in range(u.shape[0]):
            line, ui = heads[r * k : r * k + k], u[r, i]
            if r == 0:
                for j in range(width):
                    row[j] = ui * line[j]
            else:
                for j in range(width):
                    row[j] += ui * line[j]


@njit(nogil=True, cache=True)
def _dense_bar(start, stop, k, rows, listed, u, heads, bar):
    """With few columns, lanes; long rows, or fewer than four columns, one by one."""
    if 4 <= k < SHORT:
        _outer(start, stop, k, rows, listed, u.reshape(u.size), *u.shape, heads, bar)
    else:
        _outer_rows(start, stop, k, rows, listed, u, heads, bar)


@njit(nogil=True, cache=True, fastmath=FAST)
def _pairs(start, stop, u, v, to):
    """to[i - start] = sum_r u[r, i] v[r, i]"""
    for t in range(to.size):
        to[t] = 0
    for r in range(u.shape[0]):
        a, b = u[r, start:stop], v[r, start:stop]
        for t in range(to.size):
            to[t] += a[t] * b[t]


@njit(nogil=True, cache=True, fastmath=FAST)
def outer(start, stop, k, skip, rows, listed, u, heads, rest, dense_bar, diagonal_bar):
    """The places of C in sum_r u_r z_r', line by line; those of the diagonal from line ``skip`` on."""
    _dense_bar(start, stop, k, rows, listed, u, heads, dense_bar)
    first = min(max(start, skip), stop)
    _pairs(first, stop, u, rest, diagonal_bar[first - skip : stop - skip])
    for i in range(start, stop if listed else start):
        if rows[i] < k:
            diagonal_bar[i - skip] = 0


@njit(nogil=True, cache=True)
def gram_heads(start, stop, flat, stride, k, diagonal, rows, x, y, both):
    """What these rows add to the first k entries of C' x_r, then C' y_r; and ``both``, x and then y, for the second pass."""
    count = x.shape[0]
    totals = np.zeros((2 * count, k))
    for begin in range(start, stop, TILE):
        end = min(begin + TILE, stop)
        for r in range(count):
            from_x, from_y = x[r, begin:end], y[r, begin:end]
            to_x, to_y = both[r, begin:end], both[count + r, begin:end]
            for t in range(end - begin):
                to_x[t], to_y[t] = from_x[t], from_y[t]
        totals += columns_of_product(begin, end, flat, stride, k, diagonal, rows, False, both, both[:0])
    return totals


@njit(nogil=True, cache=True, fastmath=FAST)
def gram_bars(start, stop, flat, stride, k, diagonal, rows, both, head, weights, heads, dense_bar, diagonal_bar, x_bar):
    """The second pass of ``gram_vjp``: one read of a row for x_bar and one write of its cotangent, while the vectors are at hand.

    With p = C' x and q = C' y, whose entries beyond the first k are d x and d y:
        dense_bar[i, j] = y[i] p[j] + x[i] q[j]
        diagonal_bar = y (d x) + x (d y) = 2 d x y
        x_bar = C q: the row's product with the head of q, and d (d y) = d^2 y.
    ``head`` is that of q, ``weights`` the same by lanes, ``heads`` those of q, then of p.
    """
    count, y = len(x_bar), both[len(x_bar) :]
    for begin in range(start, stop, TILE):
        end = min(begin + TILE, stop)
        rows_of_product(begin, end, flat, stride, k, diagonal, True, rows, False, head, weights, y, x_bar)
        _dense_bar(begin, end, k, rows, False, both, heads, dense_bar)
        first = min(max(begin, k), end)
        to, entries = diagonal_bar[first - k : end - k], diagonal[first - k : end - k]
        _pairs(first, end, both[:count], y, to)
        for t in range(to.size):
            to[t] *= 2 * entries[t]
