"""Recovery of interactions by the default of ``learn``: its structure beside its predictive model.

usage: PYTHONPATH=tutorials bench_structure_recovery.py [--laws N] [--rows N ...] [--patterns NAME ...]
    [--seed N]

Random laws of four variables of five levels with the three structures of tutorials/sample_complexity.py, and two of
triples without their pairs ("bare" and "triples"), where pairs inside a triple are false. The rows are split 35/15/50
as at the command line; F1, precision and recall are those of sets of two variables or more, mean over the laws.
"""

import numpy as np
import torch
from harness import markdown, plain_script

from pyro_hoim import Domain, InteractionHypergraph
from pyro_hoim.log_linear import learn

from studies.complexity import draw_rows, structure_recovery
from studies.random_laws import random_law

PATTERNS = {
    "low": "12 14 23",
    "medium": "12 13 14 23 123",
    "high": "12 13 14 23 24 34 123 124 134 234 1234",
    "bare": "12 14 123",
    "triples": "123 124 134 234",
}
DOMAIN = Domain.from_cardinalities(dict.fromkeys("1234", 5))


def generator(*key):
    """A generator of its own for every key."""
    return torch.Generator().manual_seed(int(np.random.SeedSequence(key).generate_state(1)[0]))


def main():
    parser = plain_script(__doc__)
    parser.add_argument("--laws", type=int, default=8)
    parser.add_argument("--rows", nargs="+", type=int, default=[160, 640, 2560, 10_240])
    parser.add_argument("--patterns", nargs="+", choices=[*PATTERNS], default=["low", "medium", "high"])
    parser.add_argument("--seed", type=int, default=2024)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(*markdown(["law", "model", *(f"{n:,}" for n in options.rows)]), sep="\n")
    for name in options.patterns:
        which, edges = list(PATTERNS).index(name), [*DOMAIN.names, *PATTERNS[name].split()]
        truth = InteractionHypergraph(DOMAIN, map(tuple, edges), hierarchical=False)
        cells = {"structure": [], "predictive": []}
        for size in options.rows:
            found = {"structure": [], "predictive": []}
            for law_number in range(options.laws):
                law = random_law(DOMAIN, truth.edges, generator=generator(options.seed, which, law_number))
                rows = draw_rows(law, size, generator=generator(options.seed, which, law_number, size))
                train, validation, _ = rows.split([0.35, 0.15, 0.5], 0)
                learned = learn(train, validation)
                found["predictive"].append(structure_recovery(learned.hypergraph, truth))
                found["structure"].append(structure_recovery(learned.structure.hypergraph, truth))
            for model, values in found.items():
                precision, recall, f1 = np.mean(values, axis=0)
                cells[model].append(f"{f1:.2f} ({precision:.2f} / {recall:.2f})")
        for model, shown in cells.items():
            print(f"| {name} | {model} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    main()
