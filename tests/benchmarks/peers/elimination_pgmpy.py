"""Peer runner for pgmpy, in its own venv: reads models from an .npz file, prints one JSON object per measurement."""

import json
import logging
import sys
import warnings
from importlib.metadata import version

import numpy as np
from timing import measure

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)

from pgmpy.factors.discrete import DiscreteFactor  # noqa: E402
from pgmpy.inference import BeliefPropagation, VariableElimination  # noqa: E402
from pgmpy.models import DiscreteMarkovNetwork  # noqa: E402


def main(path, repeats):
    file = np.load(path, allow_pickle=False)
    for name in json.loads(str(file["names"])):
        scopes = json.loads(str(file[f"{name}/scopes"]))
        tables = [file[f"{name}/{i}"].astype(float) for i in range(len(scopes))]
        graph = DiscreteMarkovNetwork()
        for scope in scopes:
            graph.add_nodes_from([f"v{i}" for i in scope])
            graph.add_edges_from([(f"v{a}", f"v{b}") for a in scope for b in scope if a < b])
        factors = [
            DiscreteFactor([f"v{i}" for i in s], t.shape, np.exp(t).ravel())
            for s, t in zip(scopes, tables, strict=True)
        ]
        graph.add_factors(*factors)

        def calibrate():
            belief = BeliefPropagation(graph)
            belief.calibrate()
            return belief

        log_z = float(np.log(next(iter(calibrate().clique_beliefs.values())).values.sum()))
        row = {"peer": f"pgmpy {version('pgmpy')}", "what": "BeliefPropagation: junction tree and calibration"}
        print(json.dumps({"model": name, **row, "log_z": log_z, **measure(calibrate, repeats)}), flush=True)
        elimination = VariableElimination(graph)
        result = measure(lambda: elimination.query(["v0"], show_progress=False), repeats)
        row["what"] = "VariableElimination: one single-variable marginal"
        print(json.dumps({"model": name, **row, **result}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
