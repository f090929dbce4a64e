"""
A forecast that knows what it does not know
===========================================

Yearly numbers of sunspots, 1700 to 2008 (public domain, NOAA, rounded), by a model of the last nine
values. Each prediction is the next input, with its error: fed back as if they were exact,
predictions of a whole cycle have bands that hold far too few of the years to come.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastsvgp as fs

SUNSPOTS = """
5 11 16 23 36 58 29 20 10 8 3 0 0 2 11 27 47 63 60 39 28 26 22 11 21 40 78 122 103 73 47 35 11 5
16 34 70 81 111 101 73 40 20 16 5 11 22 40 60 81 83 48 48 31 12 10 10 32 48 54 63 86 61 45 36 21
11 38 70 106 101 82 66 35 31 7 20 92 154 126 85 68 38 23 10 24 83 132 131 118 90 67 60 47 41 21
16 6 4 7 14 34 45 43 48 42 28 10 8 2 0 1 5 12 14 35 46 41 30 24 16 7 4 2 8 17 36 50 64 67 71 48
28 8 13 57 122 138 103 86 65 37 24 11 15 40 62 98 125 96 67 64 54 39 21 7 4 23 55 94 96 77 59 44
47 30 16 7 38 74 139 111 102 66 45 17 11 12 3 6 32 54 60 64 64 52 25 13 7 6 7 36 73 85 78 64 42
26 27 12 10 3 5 24 42 64 54 62 48 44 19 6 4 1 10 47 57 104 81 64 38 26 14 6 17 44 64 69 78 65 36
21 11 6 9 36 80 114 110 89 68 48 31 16 10 33 93 152 136 135 84 69 32 14 4 38 142 190 185 159 112
54 38 28 10 15 47 94 106 106 104 67 69 38 34 16 13 28 92 155 155 140 116 67 46 18 13 29 100 158
143 146 94 55 30 18 9 22 64 93 120 111 104 64 40 30 15 8 3
"""
LAGS, TRAINED, STEPS = 9, 209, 12
years = np.sqrt(np.array(SUNSPOTS.split(), float))
centre, scale = years[:TRAINED].mean(), years[:TRAINED].std()
y = (years - centre) / scale

X, Y = fs.bounds.lagged(y[:TRAINED], LAGS)
Z = fs.inducing.kmeans(X, 40, rng=0)
_, info = fs.fit(fs.SGPR(fs.RBF(1.0, np.full(LAGS, 4.5)), Z, 0.2), X, Y, steps=200)
model = fs.predictor(info.svgp)

origins = np.arange(TRAINED, len(y) - STEPS + 1)
history = np.stack([y[o - LAGS : o] for o in origins])
truth = np.stack([y[o : o + STEPS] for o in origins])
mean, var = fs.bounds.forecast(model, history, STEPS)

lags, plain = history[:, ::-1], []  # predictions fed back as if they were exact
for _ in range(STEPS):
    plain.append(fs.predict_y(model, lags))
    lags = np.concatenate([plain[-1][0][:, None], lags[:, :-1]], axis=1)
plain_mean, plain_var = (np.stack(values, axis=1) for values in zip(*plain, strict=True))


def held(mean, var):
    """The share of truths in bands of 90 %, at each step."""
    return (np.abs(truth - mean) < 1.645 * np.sqrt(var)).mean(axis=0)


figure, axes = plt.subplots(1, 2, figsize=(11, 3.6), sharey=True)
at = np.arange(STEPS) + 1
for ax, m, v, title in (
    (axes[0], mean, var, "fs.bounds.forecast"),
    (axes[1], plain_mean, plain_var, "fed back as exact numbers"),
):
    one = 40  # an origin
    for width, shade in ((0.674, 0.5), (1.282, 0.3), (1.645, 0.2)):  # 50, 80, 90 %
        low, high = (m[one] + sign * width * np.sqrt(v[one]) for sign in (-1, 1))
        ax.fill_between(
            at, *(scale * b + centre for b in (low, high)), alpha=shade, color="C0", lw=0
        )
    past = scale * history[one] + centre
    ax.plot(np.arange(-LAGS, 0) + 1, past, "k.-")
    ax.plot(at, scale * truth[one] + centre, "k.")
    ax.set_title(f"{title}: 90 % bands hold {held(m, v)[-1]:.0%} at step {STEPS}")
    ax.set_xlabel("years ahead")
axes[0].set_ylabel("root of sunspots")
figure.tight_layout()
plt.show()

for name, m, v in (("carried", mean, var), ("as exact", plain_mean, plain_var)):
    print(f"{name}: held in 90 % bands at steps 1, 6, 12: {held(m, v)[[0, 5, 11]].round(2)}")
