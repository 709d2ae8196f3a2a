"""Peer runner: weighted mini-buckets of pygms. Run in pygms' own venv.

python bounds_pygms.py MODEL.uai BITS PASSES NUMBER: bounds in nats after as many passes forward, tables of at most
2^BITS cells, and processor time of the order and of both bounds. Ties of the order are random from NUMBER 1 on.
"""

import json
import sys
import time
import warnings
from importlib.metadata import version

warnings.simplefilter("ignore")

import numpy as np  # noqa: E402
import pygms  # noqa: E402
from pygms import wmb  # noqa: E402
from pygms.filetypes import readUai  # noqa: E402


def main(path, bits, passes, number):
    model = pygms.GraphModel(readUai(path))
    model.toLog()
    np.random.seed(number)  # noqa: NPY002 (what pygms draws from)
    start = time.process_time()
    order, _ = pygms.eliminationOrder(model, "minfill", nExtra=0 if number else -1)
    row = {"peer": f"pygms {version('pygms')}", "order_seconds": time.process_time() - start}
    size = {"iBound": bits} if all(x.states <= 2 for x in model.X) else {"sBound": 2**bits}
    for weight, name in ((1.0, "upper"), (-1.0, "lower")):
        bound = wmb.WMB(model, order, weights=weight, **size)
        values = [bound.msgForward(1.0, 0.1)]
        for _ in range(passes - 1):
            bound.msgBackward(1.0, 0.1)
            values.append(bound.msgForward(1.0, 0.1))
        row[name] = min(values) if weight > 0 else max(values)
    print(json.dumps({**row, "seconds": time.process_time() - start}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
