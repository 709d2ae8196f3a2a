"""The conformance suites accept a plain correct implementation and refuse each of its broken variants."""

import itertools
import math
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from pyro.distributions import TorchDistribution, constraints
from scipy import stats

from pyro_hoim import InputError, LogLinearEnergy, testing
from pyro_hoim.core.partition import Cost, LogPartition

from support.strategies import domains, hypergraphs, models

CARDINALITIES = (2, 3)


class _Codes(constraints.Constraint):
    is_discrete = True
    event_dim = 1

    def check(self, value):
        whole = (value == value.floor()) & (value >= 0)
        return (whole & (value < torch.tensor(CARDINALITIES))).all(-1)


class Saturated(TorchDistribution):
    """A law on 2 x 3 cells given by its logits (*batch, 6): the plain correct implementation."""

    arg_constraints = {}  # noqa: RUF012
    support = _Codes()
    has_enumerate_support = True

    def __init__(self, theta, validate_args=None):
        if not bool(torch.isfinite(theta).all()):
            raise InputError("theta: expected finite numbers")
        self.logits = theta
        super().__init__(theta.shape[:-1], torch.Size((2,)), validate_args=validate_args)

    @classmethod
    def infer_shapes(cls, *, theta):
        return theta[:-1], torch.Size((2,))

    def expand(self, batch_shape, _instance=None):
        return type(self)(self.logits.expand(*batch_shape, 6), validate_args=self._validate_args)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        index = (value[..., 0] * 3 + value[..., 1]).long()
        logits = torch.log_softmax(self.logits, -1)
        shape = torch.broadcast_shapes(index.shape, logits.shape[:-1])
        return logits.expand(*shape, 6).gather(-1, index.expand(shape)[..., None])[..., 0]

    def sample(self, sample_shape=()):
        index = torch.distributions.Categorical(logits=self.logits).sample(torch.Size(sample_shape))
        return torch.stack([index // 3, index % 3], -1)

    def enumerate_support(self, expand=True):
        states = torch.tensor(list(itertools.product(range(2), range(3))))
        states = states.reshape(6, *(1 for _ in self.batch_shape), 2)
        return states.expand(6, *self.batch_shape, 2) if expand else states


class Unnormalised(Saturated):
    def log_prob(self, value):
        return super().log_prob(value) + 1e-6


class BiasedSampler(Saturated):
    def sample(self, sample_shape=()):
        return Saturated(0.8 * self.logits).sample(sample_shape)


class SharedBatchSampler(Saturated):
    """Expanded members share their draw."""

    def __init__(self, theta, validate_args=None, batch=None):
        super().__init__(theta, validate_args)
        self.own, self._batch_shape = theta, torch.Size(theta.shape[:-1] if batch is None else batch)

    def expand(self, batch_shape, _instance=None):
        return SharedBatchSampler(self.own, self._validate_args, batch_shape)

    def log_prob(self, value):
        return Saturated(self.own.expand(*self.batch_shape, 6), self._validate_args).log_prob(value)

    def sample(self, sample_shape=()):
        draws = Saturated(self.own).sample(sample_shape)
        extra = len(self.batch_shape) - (self.own.dim() - 1)
        for _ in range(extra):
            draws = draws.unsqueeze(len(tuple(sample_shape)))
        return draws.expand(*sample_shape, *self.batch_shape, 2)


class DefaultExpand(Saturated):
    def expand(self, batch_shape, _instance=None):
        return TorchDistribution.expand(self, batch_shape, _instance)


class Unvalidated(Saturated):
    def log_prob(self, value):
        clean = value.nan_to_num().floor().clamp(min=0).minimum(torch.tensor(CARDINALITIES) - 1)[..., :2]
        return Saturated(self.logits, False).log_prob(clean)


class MemberZeroOnly(Saturated):
    """Every member of a batch gets the first one's log Z."""

    def log_prob(self, value):
        log_z = self.logits.logsumexp(-1)
        return super().log_prob(value) + log_z - log_z.reshape(-1)[0]


class Detached(Saturated):
    def log_prob(self, value):
        constant = self.logits.logsumexp(-1)
        return super().log_prob(value) + constant - constant.detach()


class Unpicklable(Saturated):
    def __init__(self, theta, validate_args=None):
        super().__init__(theta, validate_args)
        self.hook = lambda: None


class FloatSamples(Saturated):
    def sample(self, sample_shape=()):
        return super().sample(sample_shape).float()


class DoubleOnly(Saturated):
    def log_prob(self, value):
        return super().log_prob(value).double()


class WrongShapes(Saturated):
    @classmethod
    def infer_shapes(cls, *, theta):
        return theta, torch.Size((2,))


def _case():
    theta = torch.as_tensor(np.random.default_rng(0).standard_normal((2, 6)))
    return theta, torch.log_softmax(theta, -1).reshape(2, 2, 3).numpy()


@pytest.mark.parametrize("check", testing.DISTRIBUTION_CHECKS, ids=lambda check: check.__name__)
def test_correct_distribution_passes(check):
    theta, log_probs = _case()
    check(testing.DistributionCase(Saturated, theta, log_probs, {}))


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (Unnormalised, "check_exact_log_prob"),
        (Unnormalised, "check_normalisation"),
        (BiasedSampler, "check_exact_samples"),
        (SharedBatchSampler, "check_expand"),
        (DefaultExpand, "check_enumerate_support"),
        (Unvalidated, "check_validation"),
        (MemberZeroOnly, "check_batch_equals_singles"),
        (Detached, "check_gradients"),
        (Unpicklable, "check_pickle_and_copy"),
        (FloatSamples, "check_shapes"),
        (DoubleOnly, "check_float32"),
        (WrongShapes, "check_infer_shapes"),
        (Unnormalised, "check_pyro_site"),
    ],
)
def test_broken_distribution_is_refused(broken, check):
    theta, log_probs = _case()
    with pytest.raises(AssertionError, match=check):
        testing.check_distribution(broken, theta, log_probs=log_probs, shape_arguments={})


class Pair(TorchDistribution):
    """A Poisson count, and a normal number about a slope times its root: the plain correct law with axes."""

    arg_constraints = {}  # noqa: RUF012
    support = constraints.independent(constraints.cat([constraints.nonnegative_integer, constraints.real], -1), 1)

    def __init__(self, theta, validate_args=None):
        if not bool(torch.isfinite(theta).all()):
            raise InputError("theta: expected finite numbers")
        self.theta = theta
        super().__init__(theta.shape[:-1], torch.Size((2,)), validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        return type(self)(self.theta.expand(*batch_shape, 2), validate_args=self._validate_args)

    def _parts(self, count):
        normal = torch.distributions.Normal(self.theta[..., 1] * count.sqrt(), 1.0, validate_args=False)
        return torch.distributions.Poisson(self.theta[..., 0].exp(), validate_args=False), normal

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        count, number = value.to(self.theta.dtype).unbind(-1)
        poisson, normal = self._parts(count)
        return poisson.log_prob(count) + normal.log_prob(number)

    def sample(self, sample_shape=()):
        count = self._parts(torch.zeros(()))[0].sample(torch.Size(sample_shape))
        return torch.stack([count, self._parts(count)[1].sample()], -1)


class UnnormalisedPair(Pair):
    def log_prob(self, value):
        return super().log_prob(value) + 1e-6


class SteepSampler(Pair):
    def sample(self, sample_shape=()):
        return Pair(self.theta + torch.tensor([0.0, 0.15])).sample(sample_shape)


class RoundedSampler(Pair):
    def sample(self, sample_shape=()):
        return super().sample(sample_shape).round()


class LenientPair(Pair):
    support = constraints.real_vector

    def log_prob(self, value):
        return super().log_prob(value.abs())


class WholeSupport(Pair):
    has_enumerate_support = True


class IntegerSamples(Pair):
    def sample(self, sample_shape=()):
        return super().sample(sample_shape).long()


def _pair_case():
    theta = torch.tensor([[0.2, 0.8], [-0.3, 0.3]], dtype=torch.float64)
    axes = [testing.Axis.counts(3, 40), testing.Axis.numbers([-12, -0.7, 0.7, 16])]
    x, y = axes[0].values, axes[1].values.T
    tables = [stats.poisson(math.exp(a)).logpmf(x) + stats.norm(b * x**0.5).logpdf(y) for a, b in theta.tolist()]
    return {"theta": theta, "log_probs": np.stack(tables), "axes": axes}


def test_correct_law_over_counts_and_numbers_passes():
    testing.check_distribution(Pair, **_pair_case())


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (UnnormalisedPair, "check_exact_log_prob"),
        (UnnormalisedPair, "check_normalisation"),
        (SteepSampler, "check_exact_samples"),
        (RoundedSampler, "check_exact_samples"),
        (LenientPair, "check_validation"),
        (WholeSupport, "check_enumerate_support"),
        (IntegerSamples, "check_shapes"),
    ],
)
def test_broken_law_over_counts_and_numbers_is_refused(broken, check):
    with pytest.raises(AssertionError, match=check):
        testing.check_distribution(broken, **_pair_case())


def test_indicators_are_one_axis():
    axis = testing.Axis.indicators(3)
    theta = torch.tensor([[0.1, -0.4, 0.9], [0.0, 0.0, 2.0]], dtype=torch.float64)
    log_probs = torch.log_softmax(theta, -1).numpy()

    class OneHot(torch.distributions.OneHotCategorical, TorchDistribution):
        def __init__(self, logits, validate_args=None):
            super().__init__(logits=logits, validate_args=validate_args)

        def expand(self, batch_shape, _instance=None):
            return type(self)(self.logits.expand(*batch_shape, 3), self._validate_args)

    case = testing.DistributionCase(OneHot, theta, log_probs, axes=[axis])
    assert case.num_variables == 3
    for check in (testing.DISTRIBUTION_CHECKS[k] for k in (1, 2, 4, 5, 8, 12)):
        check(case)
    assert case.counts(torch.eye(3)[[0, 2, 2]]).tolist() == [1, 0, 2]
    with pytest.raises(InputError, match="draws"):
        case.counts(torch.ones(1, 3))


def test_axes_must_have_the_points_of_the_table():
    case = _pair_case()
    with pytest.raises(InputError, match="of all points"):
        testing.check_distribution(Pair, **{**case, "axes": case["axes"][:1]})
    with pytest.raises(InputError, match="ascending"):
        testing.Axis.numbers([1.0, 0.0])


def test_hidden_randomness_is_refused():
    class Seedless(Saturated):
        def sample(self, sample_shape=()):
            torch.manual_seed(next(counter))
            return super().sample(sample_shape)

    counter = itertools.count()
    theta, log_probs = _case()
    with pytest.raises(AssertionError, match="check_seed"):
        testing.check_distribution(Seedless, theta, log_probs=log_probs)


def test_case_arguments_are_checked():
    theta, log_probs = _case()
    for bad in (theta[:1], theta.float(), theta[0]):
        with pytest.raises(InputError, match="theta"):
            testing.check_distribution(Saturated, bad, log_probs=log_probs)
    with pytest.raises(InputError, match="unknown check 'check_nothing'"):
        testing.check_distribution(Saturated, theta, log_probs=log_probs, skip=["check_nothing"])


# --- backends --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plain:
    """Dense enumeration in PyTorch, the plain correct backend."""

    is_exact = True

    def plan(self, hypergraph, evidence_names=(), keep=()):
        rest = hypergraph.restrict(evidence_names)
        cells = rest.domain.num_states
        return Cost(cells, cells, cells * len(rest.edges), 8 * cells, True, "all states are listed", "plain")

    def _scores(self, model):
        codes = torch.as_tensor(testing.enumerate_codes(model.domain.cardinalities))
        shape = (len(codes), *(1 for _ in model.batch_shape), len(model.domain))
        return -model.energy(codes.reshape(shape)).movedim(0, -1)

    def log_partition(self, model):
        return LogPartition.exact(self._scores(model).logsumexp(-1), self.plan(model.hypergraph))

    def expectations(self, model):
        parts = [self.marginal(model, edge).flatten(len(model.batch_shape)) for edge in model.hypergraph.edges]
        return torch.cat([model.tables[..., :0], *parts], -1)

    def marginal(self, model, names):
        probs = self._scores(model).softmax(-1).reshape(*model.batch_shape, *model.domain.cardinalities)
        lead, positions = len(model.batch_shape), model.domain.indices(names)
        others = [lead + i for i in range(len(model.domain)) if i not in positions]
        kept = sorted(positions)
        summed = probs.sum(others) if others else probs
        return summed.permute(*range(lead), *(lead + kept.index(i) for i in positions))

    def log_marginal(self, model, names):
        return self.marginal(model, names).log()

    def mode(self, model):
        best = self._scores(model).max(-1)
        return torch.as_tensor(testing.enumerate_codes(model.domain.cardinalities))[best.indices], best.values

    def sample(self, model, sample_shape, generator=None):
        probs = self._scores(model).softmax(-1)
        flat = probs.reshape(-1, probs.shape[-1])
        index = torch.multinomial(flat, math.prod(sample_shape), replacement=True, generator=generator)
        codes = torch.as_tensor(testing.enumerate_codes(model.domain.cardinalities))
        return codes[index].movedim(1, 0).reshape(*sample_shape, *model.batch_shape, len(model.domain))


class WrongLogZ(Plain):
    def log_partition(self, model):
        result = super().log_partition(model)
        return SimpleNamespace(value=result.value + 1e-8, kind="exact", coding="balanced")


class OneInteractionDropped(Plain):
    def _scores(self, model):
        if model.hypergraph.num_terms:
            tables = model.tables.clone()
            tables[..., list(model.hypergraph.term_slices.values())[-1]] = 0
            model = LogLinearEnergy(model.hypergraph, tables)
        return super()._scores(model)


class SchemaOrder(Plain):
    def marginal(self, model, names):
        return super().marginal(model, tuple(sorted(names)))


class HotSampler(Plain):
    def sample(self, model, sample_shape, generator=None):
        return super().sample(LogLinearEnergy(model.hypergraph, 0.8 * model.tables), sample_shape, generator)


class GlobalRandomness(Plain):
    def sample(self, model, sample_shape, generator=None):
        return super().sample(model, sample_shape)


class FirstOrderOnly(Plain):
    def log_partition(self, model):
        value = super().log_partition(model).value
        eta = super().expectations(model)
        linear = (eta.detach() * (model.tables - model.tables.detach())).sum(-1)
        return SimpleNamespace(value=value.detach() + linear, kind="exact", coding="balanced")


class WorstState(Plain):
    def mode(self, model):
        return super().mode(LogLinearEnergy(model.hypergraph, -model.tables))


def test_correct_backend_passes():
    testing.check_backend(Plain())


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (WrongLogZ, "check_log_partition"),
        (WrongLogZ, "check_condition"),
        (OneInteractionDropped, "check_expectations"),
        (OneInteractionDropped, "check_mode"),
        (SchemaOrder, "check_marginals"),
        (HotSampler, "check_samples"),
        (GlobalRandomness, "check_samples"),
        (FirstOrderOnly, "check_hessian"),
        (WorstState, "check_mode"),
    ],
)
def test_broken_backend_is_refused(broken, check):
    chain = {"chain": testing.standard_hypergraphs()["chain"]}
    with pytest.raises(AssertionError, match=check):
        testing.check_backend(broken(), hypergraphs=chain, scales=[1.0])


# --- strategies ------------------------------------------------------------------------------------------------------


@settings(max_examples=100, derandomize=True, deadline=None, database=None)
@given(models(hypergraph=hypergraphs(hierarchical=False), batch_shape=(2,)))
def test_random_models_are_balanced_and_small(model):
    graph = model.hypergraph
    assert graph.domain.num_states <= 256
    assert model.tables.shape == (2, graph.num_terms) and model.tables.dtype == torch.float64
    for edge, table in testing.split_tables(graph, model.tables).items():
        for axis in range(1, 1 + len(edge)):
            assert abs(table.sum(axis)).max() <= 1e-11 * (1 + model.scale)


def test_strategies_reach_the_edge_cases():
    seen = dict.fromkeys(
        ["no edges", "saturated", "one variable", "one state", "disconnected", "holes", "scale 0", "scale 30"], False
    )

    @settings(max_examples=300, derandomize=True, deadline=None, database=None)
    @given(models(hypergraph=hypergraphs(hierarchical=False)))
    def look(model):
        graph = model.hypergraph
        names = graph.domain.names
        seen["no edges"] |= not graph.edges
        seen["saturated"] |= len(names) > 1 and names in graph.edges and graph.is_hierarchical
        seen["one variable"] |= len(names) == 1
        seen["one state"] |= 1 in graph.domain.cardinalities
        seen["disconnected"] |= len(graph.components()) > 1
        seen["holes"] |= not graph.is_hierarchical
        seen["scale 0"] |= model.scale == 0
        seen["scale 30"] |= model.scale == 30

    look()
    assert all(seen.values()), [name for name, met in seen.items() if not met]


@settings(max_examples=50, derandomize=True, deadline=None, database=None)
@given(domains(min_variables=0, max_states=50))
def test_domains_fit_the_room(domain):
    assert domain.num_states <= 50
