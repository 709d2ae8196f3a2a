"""l1-penalised logistic regressions of some columns of a 0/1 table on all others, at one penalty, by skglm.

node_skglm.py TABLE.npy PENALTY TOLERANCE NODE...; a line of JSON: processor seconds and the sum of objectives.
"""

import json
import sys
import time
import warnings

import numpy as np
from skglm import SparseLogisticRegression

warnings.simplefilter("ignore")
table, penalty, tolerance = np.load(sys.argv[1]).astype(float), float(sys.argv[2]), float(sys.argv[3])


def solved(node):
    """Processor seconds of a node, without those that copy its columns, and its objective."""
    others, y = np.asfortranarray(np.delete(table, node, 1)), np.where(table[:, node] > 0, 1.0, -1.0)
    start = time.process_time()
    fit = SparseLogisticRegression(alpha=penalty, tol=tolerance, fit_intercept=True).fit(others, y)
    seconds = time.process_time() - start
    weights = fit.coef_.ravel()
    loss = np.logaddexp(0, -y * (others @ weights + fit.intercept_)).mean()
    return seconds, float(loss + penalty * np.abs(weights).sum())


solved(0)  # compiles
figures = [solved(int(node)) for node in sys.argv[4:]]
print(json.dumps({"seconds": sum(s for s, _ in figures), "objective": sum(o for _, o in figures)}))
