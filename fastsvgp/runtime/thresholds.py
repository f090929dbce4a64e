"""Thresholds by which recipes, estimators, search and command line choose how to train.

With Gaussian noise a collapsed bound exists, and L-BFGS on all rows can replace minibatches. That
is the default in two cases. Up to ``FEW_ROWS`` rows L-BFGS is best with any number of inducing
inputs: see bench/results/estimators.md. Up to ``MOST_ROWS`` rows it is the default only with at
least ``MANY`` inducing inputs. With fewer it can stop at an optimum that ignores relevant inputs:
with 256, bike (5000 rows) has an RMSE of 0.081 by L-BFGS, and of 0.037 by minibatches. Methods and
solvers that are requested by name are used with any number of rows.

The command line also chooses the number of inducing inputs: all distinct rows, held fixed, up to
``EXACT_ROWS`` of them, else ``MANY``. With all rows the bound is the marginal likelihood of an
exact GP, except for the jitter, and needs no gradient in the inducing inputs. Measured on held-out
rows (test split 0, Matérn 3/2 ARD; RMSE, NLPD, processor seconds of the whole command, or of
training only for *):

    data               minibatches, M = 256   scikit-learn's exact GP   chosen here
    airfoil, 1353      0.254,  0.061, 36 s    0.164, -0.360, 21 s       0.164, -0.360, 16 s
    energy, 692        0.043, -1.718, 39 s    0.043, -1.725, 10 s       0.032, -2.063,  8 s
    kin40k, 2250       0.387,  0.483, 35 s                              0.331,  0.275, 38 s *
    elevators, 2250    0.399,  0.494, 40 s                              0.400,  0.495, 35 s *

The numbers after the names are training rows; kin40k and elevators have more.

A start from a smaller problem does not pay. From the hyperparameters of 500 random rows, airfoil
takes 31 evaluations of the bound, and 27 from scratch. From those of 300 rows, energy ends at a
maximum that is 65 nats lower. From those of 256 inducing inputs, kin40k takes 69 s, and 65 s from
scratch. With 1000 inducing inputs fixed at the centres of k-means, kin40k has an NLPD of 0.41.

A step of ``DecoupledWeights`` computes all M2^2 covariances of O, or those of S sampled rows with
O. Milliseconds of a step (value and gradients, batches of B, D = 8, one thread beside other work):

    M + M2, B              S = 1    S = 1024    all
    64 + 506, 1024           13                  16
    128 + 1012, 1024         19                  29
    256 + 2048, 512          28        50        70
    512 + 4096, 1024        103       142       238
    1024 + 4096, 1024       266       356       455
    1024 + 8096, 1024       503       460      1029

So all of them cost at most as much as the rest of the step up to about M2 = 2 (M + B), and are then
the default; beyond it, S = ``COLUMNS``.
"""

INDUCING = 256  # default number of inducing inputs: recipes, estimators, the command line
FEW_ROWS = 1000  # most rows for L-BFGS with any number of inducing inputs
MOST_ROWS = 5000  # most rows for L-BFGS with at least MANY inducing inputs, or with all rows
MANY = 1000
EXACT_ROWS = 1500  # most distinct rows that all become inducing inputs
MOST_LATENTS = 10_000  # latent functions of one model
COLUMNS = 1024  # per step of ``DecoupledWeights``, if all would take most of it


def collapses_well(rows, inducing):
    """Whether the collapsed bound of Gaussian noise is the default.

    ``inducing``: their number; ``rows`` if all distinct rows are inducing inputs.
    """
    return rows <= FEW_ROWS or (rows <= MOST_ROWS and inducing >= MANY)


def inducing_by_default(distinct):
    """Return the number of inducing inputs of a collapsed bound with this many distinct rows."""
    return distinct if distinct <= EXACT_ROWS else MANY


def columns_by_default(first, second, batch):
    """Return the columns per step of ``DecoupledWeights`` on sets of these sizes; None for all."""
    return None if second <= max(COLUMNS, 2 * (first + batch)) else COLUMNS
