"""The domain, rows and trainers that several tests of searches share."""

from dataclasses import replace

import torch

from pyro_hoim import Domain, Observations
from pyro_hoim.log_linear import ExactTrainer

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 2})


def draw(law, size, rng, domain=DOMAIN):
    return Observations.from_table(domain, rng.multinomial(size, law.ravel()).reshape(domain.cardinalities))


class Dying(ExactTrainer):
    """Counts its rounds, and stops in the middle of one of them."""

    calls = 0
    die_at = 10**9
    error: type[BaseException] = KeyboardInterrupt

    def train(self):
        self.calls += 1
        report = super().train()
        if self.calls == self.die_at:
            raise self.error
        return report


def same(first, second):
    """Equal but for the time that was spent."""
    assert [replace(r, seconds=0.0) for r in first.rounds] == [replace(r, seconds=0.0) for r in second.rounds]
    assert (first.best_round, first.status, first.hypergraph) == (second.best_round, second.status, second.hypergraph)
    assert torch.equal(first.tables, second.tables)
