"""Peak memory of a long run that keeps statistics only: 100,000 chains of 23 variables for 1,000 sweeps.

The model has the cardinalities of the mushroom data, 40 random pairs and 20 random triples with full tables. The peak
is that of the whole process, the interpreter and all imports included; the second figure is what importing the library
and its sampler takes. Prints one JSON object.

    python tests/benchmarks/bench_memory.py [--chains 100000] [--sweeps 1000] [--threads 2] [--engine auto]
"""

import json
import platform
import sys
import time
from importlib.metadata import version

import numpy as np
import torch
from harness import MUSHROOM, peak_mb, plain_script, subsets

from pyro_hoim.log_linear import GibbsChains, LogLinearEnergy
from pyro_hoim.runs import sample_chains
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph

LIMIT_MB = 500


def mushroom_model():
    """Single variables, 40 pairs and 20 triples; tables normal with standard deviation 0.3."""
    rng = np.random.default_rng(2)
    d = len(MUSHROOM)
    scopes = [(i,) for i in range(d)] + subsets(rng, d, 2, 40) + subsets(rng, d, 3, 20)
    domain = Domain.from_cardinalities({f"v{i}": n for i, n in enumerate(MUSHROOM)})
    hypergraph = InteractionHypergraph(domain, [tuple(f"v{i}" for i in s) for s in scopes], hierarchical=False)
    return LogLinearEnergy(hypergraph, torch.from_numpy(rng.normal(0, 0.3, hypergraph.num_terms)))


def main():
    parser = plain_script(__doc__)
    parser.add_argument("--chains", type=int, default=100_000)
    parser.add_argument("--sweeps", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--engine", default="auto")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = mushroom_model()
    # The compiler (or the loader of its cache) belongs to the imports.
    sample_chains(GibbsChains(model, 16, engine=options.engine), 2)
    imports = peak_mb()
    start = time.perf_counter()
    run = sample_chains(GibbsChains(model, options.chains, engine=options.engine), options.sweeps)
    seconds = time.perf_counter() - start
    peak = peak_mb()
    updates = options.chains * options.sweeps * sum(n > 1 for n in MUSHROOM)
    figures = {
        "chains": options.chains,
        "sweeps": options.sweeps,
        "variables": len(MUSHROOM),
        "terms": model.hypergraph.num_terms,
        "engine": type(run.chains._engine).__name__,
        "threads": options.threads,
        "seconds": round(seconds, 2),
        "million_updates_per_second": round(updates / seconds / 1e6, 1),
        "peak_mb": round(peak, 1),
        "imports_mb": round(imports, 1),
        "run_mb": round(peak - imports, 1),
        "limit_mb": LIMIT_MB,
        "python": platform.python_version(),
        "torch": version("torch"),
        "numba": version("numba"),
        "platform": platform.platform(),
    }
    print(json.dumps(figures))
    return 0 if peak < LIMIT_MB else 1


if __name__ == "__main__":
    sys.exit(main())
