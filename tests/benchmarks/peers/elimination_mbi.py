"""Peer runner: mbi. Reads models from an .npz file, prints one JSON object per measurement. Run in mbi's own venv."""

import json
import sys
import warnings
from importlib.metadata import version

import numpy as np
from timing import measure

warnings.filterwarnings("ignore")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from mbi import CliqueVector, Domain, Factor, marginal_oracles  # noqa: E402

jax.config.update("jax_enable_compilation_cache", False)


def main(path, repeats, oracles):
    file = np.load(path, allow_pickle=False)
    for name in json.loads(str(file["names"])):
        cards = [int(c) for c in file[f"{name}/cards"]]
        scopes = json.loads(str(file[f"{name}/scopes"]))
        domain = Domain.fromdict({f"v{i}": c for i, c in enumerate(cards)})
        cliques = [tuple(f"v{i}" for i in scope) for scope in scopes]
        potentials = CliqueVector(
            domain,
            cliques,
            {c: Factor(domain.project(c), jnp.array(file[f"{name}/{i}"])) for i, c in enumerate(cliques)},
        )
        junction, _ = marginal_oracles.junction_tree.make_junction_tree(domain, cliques)
        cells = max(domain.size(c) for c in junction.nodes)
        for oracle in oracles:
            function = getattr(marginal_oracles, oracle)

            def call():
                return jax.block_until_ready(function(potentials))

            row = {
                "model": name,
                "peer": f"mbi {version('mbi')}",
                "what": f"{oracle}: marginals, compiled",
                "cells": int(cells),
                **measure(call, repeats),
                "check": float(np.asarray(call()[cliques[-1]].values).reshape(-1)[0]),
            }
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
