import numpy as np
from scipy.spatial import cKDTree
def earlier_rows(points, order, k, codes=None):
    x = points
    N = len(x); near = np.full((N, k), -1); 
    start = 0
    while start < len(order):
        stop = min(len(order), max(2 * start, 4 * k, 1))
        tree = cKDTree(x[order[:stop]])
        ask = np.arange(start, stop); want = min(stop, 3 * k + 8)
        while len(ask):
            _, j = tree.query(x[order[ask]], want)
            j = j.reshape(len(ask), -1)
            ok = j < ask[:, None]
            enough = (ok.sum(1) >= np.minimum(k, ask)) | (want >= stop)
            for t in np.flatnonzero(enough):
                c = j[t][ok[t]][:k]
                near[order[ask[t]], :len(c)] = order[c]
            ask, want = ask[~enough], min(stop, 3 * want)
        start = stop
    rest = np.setdiff1d(np.arange(N), order)
    if len(rest): near[rest] = Nearest(points, order).query(points[rest], k)
    return near.astype(np.int32)
class Nearest:
    def __init__(self, points, usable, codes=None):
        self.tree, self.usable = cKDTree(points[usable]), usable
    def query(self, points, k, codes=None):
        n = min(k, len(self.usable))
        out = np.full((len(points), k), -1, np.int32)
        if n: out[:, :n] = self.usable[self.tree.query(points, n)[1].reshape(len(points), n)]
        return out
def place_rows(points, codes=None):
    out = np.empty(len(points), np.int64); out[cKDTree(points).indices] = np.arange(len(points)); return out
def random_order(usable, seed): return np.random.default_rng(seed).permutation(usable)
