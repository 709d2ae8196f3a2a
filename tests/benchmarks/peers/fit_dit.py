"""Peer runner: dit. Reads tables from an .npz file, prints one JSON object per measurement. Run in dit's own venv."""

import itertools
import json
import sys
import warnings
from importlib.metadata import version

import numpy as np
from timing import measure

warnings.filterwarnings("ignore")

import dit  # noqa: E402
from dit.algorithms import maxent_dist  # noqa: E402


def main(path, repeats):
    file = np.load(path)
    for name in file.files:
        order = int(name.rpartition("/")[2])
        table = file[name]
        outcomes = ["".join(map(str, c)) for c in itertools.product(*(range(n) for n in table.shape))]
        law = dit.Distribution(outcomes, list((table / table.sum()).ravel()))
        margins = [list(s) for s in itertools.combinations(range(table.ndim), order)]
        times = measure(lambda law=law, margins=margins: maxent_dist(law, margins), repeats)
        found = maxent_dist(law, margins)
        found.make_dense()
        probs = [float(found[o]) if o in found.outcomes else 0.0 for o in law.outcomes]
        print(json.dumps({"name": name, "peer": f"dit {version('dit')}", **times, "probs": probs}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
