"""Peer runner: cgmodsel's ADMM for sparse + low-rank pairwise models. Reads rows of 0 and 1 from an .npz file."""

import json
import sys
import time

import numpy as np
import pandas as pd
from cgmodsel.admm import AdmmCGaussianSL
from cgmodsel.dataops import load_prepare_data
from scipy import optimize

_minimize = optimize.minimize


def minimize(*arguments, **options):
    """SciPy's function with a message in bytes, as cgmodsel 1.0 expects it."""
    found = _minimize(*arguments, **options)
    found.message = found.message.encode() if isinstance(found.message, str) else found.message
    return found


optimize.minimize = minimize


def main(path, strengths, iterations):
    rows = np.load(path)["rows"]
    frame = pd.DataFrame({f"x{i}": np.where(column, "b", "a") for i, column in enumerate(rows.T)}, dtype="category")
    indicators, numbers, meta = load_prepare_data(frame, cattype="dummy_red")
    solver = AdmmCGaussianSL()
    solver.opts.update({"maxiter": iterations, "off": 1, "use_u": 1, "use_alpha": 0, "verb": 0})
    solver.drop_data((indicators, numbers), meta)
    solver.set_regularization_params(strengths)
    start = time.process_time()
    out = solver.solve(report=0)
    seconds = time.process_time() - start
    sparse, low_rank = (np.asarray(part).tolist() for part in solver.problem_vars[:2])
    found = {"seconds": seconds, "iterations": int(out["iter"]), "sparse": sparse, "low_rank": low_rank}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], tuple(json.loads(sys.argv[2])), int(sys.argv[3]))
