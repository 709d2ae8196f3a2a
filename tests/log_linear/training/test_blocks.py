"""Sampled training that draws whole interactions, and new ones more often: options, schedules, the same optimum."""

import pytest
import torch

from pyro_hoim import Domain, InputError, InteractionHypergraph, Observations
from pyro_hoim.log_linear import ExactTrainer, InteractionRidge, SampledTrainer, SampledTraining
from pyro_hoim.log_linear.training.sampled._weighted_chains import schedule_of

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "wide": 3000})
PAIRS = InteractionHypergraph(DOMAIN, [("a", "b"), ("b", "c"), ("b", "wide")], closure=True)


def test_schedules_and_refused_options():
    assert schedule_of(PAIRS, SampledTraining()).resolve(PAIRS) == ((0,), (1,), (2,), (3,))
    whole = schedule_of(PAIRS, SampledTraining(blocks="interactions"), [("a", "b")])
    assert whole.resolve(PAIRS) == ((0, 1), (1, 2), (3,))  # 9,000 states of b and wide are no block
    assert whole.emphasised == ()
    new = schedule_of(PAIRS, SampledTraining(blocks="interactions", emphasis=0.5), [("a", "b")])
    assert new.emphasised == (("a", "b"),)
    assert new.order(PAIRS, new.resolve(PAIRS), 0, 2, 0).tolist() == [[0, 1], [0, 2]]
    for options in ({"blocks": "colours"}, {"emphasis": 0.0}, {"emphasis": 1.0}):
        with pytest.raises(InputError):
            SampledTraining(**options)


def rows():
    table = [[[40, 41], [10, 9], [5, 12]], [[11, 10], [39, 40], [20, 3]]]
    return Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 3, "c": 2}), table)


@pytest.mark.parametrize("options", [{"blocks": "interactions"}, {"blocks": "interactions", "emphasis": 0.5}])
def test_the_optimum_is_that_of_exact_gradients(options):
    data, ridge = rows(), InteractionRidge(1.0, by_order={1: 0.05})
    pairs = InteractionHypergraph.from_order(data.domain, 2)
    exact = ExactTrainer(data, pairs, penalty=ridge)
    exact.train()
    settings = SampledTraining(num_chains=2000, num_iterations=300, refresh_every=None, restart=False, **options)
    trainer = SampledTrainer(data, InteractionHypergraph.from_order(data.domain, 1), penalty=ridge, settings=settings)
    trainer.train()
    trainer.restructure(pairs)
    trainer.train()
    judge = ExactTrainer(data, pairs)
    judge.load_state_dict({"tables": trainer.tables})
    best, alone = exact.loss(data).value, exact_loss_of_singles(data)
    assert best <= judge.loss(data).value < best + 0.05 * (alone - best)  # control: independent columns are far


def exact_loss_of_singles(data):
    alone = ExactTrainer(data, InteractionHypergraph.from_order(data.domain, 1))
    alone.train()
    return alone.loss(data).value


def test_a_state_knows_what_was_added():
    data, ridge = rows(), InteractionRidge(1.0, by_order={1: 0.05})
    settings = SampledTraining(
        num_chains=64, num_iterations=3, refresh_every=None, restart=False, blocks="interactions", emphasis=0.5
    )
    first = SampledTrainer(data, InteractionHypergraph.from_order(data.domain, 1), penalty=ridge, settings=settings)
    first.train()
    first.restructure(InteractionHypergraph(data.domain, [("a", "b")], closure=True).add_edges([("c",)]))
    first.restructure(first.hypergraph.add_edges([("b", "c")]))
    state = first.state_dict()
    other = SampledTrainer(data, first.hypergraph, penalty=ridge, settings=settings)
    other.load_state_dict(state)
    assert other.state_dict()["added"].tolist() == [False, False, False, False, True]
    for trainer in (first, other):
        trainer.train()
    assert torch.equal(first.tables, other.tables)
