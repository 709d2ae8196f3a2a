"""What every distribution around a shared law keeps when it is expanded, subclassed, copied or validated."""

import copy
import pickle

import pyro
import pytest
import torch

from pyro_hoim import Domain, HierarchicalLogLinear, InputError, InteractionHypergraph, LogLinearStatistics, Variable
from pyro_hoim.dependency_network import DependencyConditionals, DependencyNetwork, TableConditional
from pyro_hoim.generalized_root import GeneralizedRoot, PoissonFamily, RootStructure

CODES = Domain.from_cardinalities({"a": 2, "b": 2})
COUNTS = Domain([Variable("a", kind="count"), Variable("b", kind="count")])


def _log_linear(cls=HierarchicalLogLinear, **options):
    return cls(InteractionHypergraph.saturated(CODES), torch.tensor([0.1, -0.2, 0.3]), **options)


def _statistics(cls=LogLinearStatistics, **options):
    return cls(InteractionHypergraph.saturated(CODES), torch.tensor([0.1, -0.2, 0.3]), 1, **options)


def _network(cls=DependencyNetwork, **options):
    nodes = [TableConditional(CODES, name, [], torch.tensor([0.4, 0.6])) for name in "ab"]
    return cls(DependencyConditionals(nodes), **options)


def _roots(cls=GeneralizedRoot, **options):
    structure = RootStructure.simplified(COUNTS, [("a", "b")])
    return cls(structure, torch.tensor([0.1, -0.2, 0.3]), PoissonFamily(), **options)


# maker, class, a value of the event, a value outside the support
CASES = [
    pytest.param(_log_linear, HierarchicalLogLinear, [0.0, 1.0], [0.0, 7.0], id="log-linear"),
    pytest.param(_statistics, LogLinearStatistics, None, None, id="statistics"),
    pytest.param(_network, DependencyNetwork, [0.0, 1.0], [0.0, 7.0], id="network"),
    pytest.param(_roots, GeneralizedRoot, [0.0, 1.0], [0.0, -1.0], id="roots"),
]


@pytest.mark.parametrize(("make", "cls", "inside", "outside"), CASES)
def test_an_expanded_law_keeps_what_the_law_had(make, cls, inside, outside):
    law = make()
    wide = law.expand([2, 3]).expand((4, 2, 3))
    value = law.sample() if inside is None else torch.tensor(inside)
    assert type(wide) is cls
    assert (wide.batch_shape, wide.event_shape) == ((4, 2, 3), law.event_shape)
    assert torch.equal(wide.log_prob(value), law.log_prob(value).expand(4, 2, 3))
    assert wide.sample((5,)).shape == (5, 4, 2, 3, *law.event_shape)
    assert law.expand([]).batch_shape == ()
    for double in (pickle.loads(pickle.dumps(wide)), copy.deepcopy(wide), copy.copy(wide)):
        assert torch.equal(double.log_prob(value), wide.log_prob(value))
        assert double.batch_shape == wide.batch_shape
    assert "batch_shape=(4, 2, 3)" in repr(wide)
    assert "batch_shape" not in repr(law)
    with pytest.raises(InputError, match=r"\(4, 2, 3\) cannot be expanded to \(3, 3\)"):
        wide.expand([3, 3])


@pytest.mark.parametrize(("make", "cls", "inside", "outside"), CASES)
def test_an_expanded_law_shares_its_law(make, cls, inside, outside):
    law = make()
    assert all(vars(law.expand([2]))[name] is vars(law)[name] for name in ("_law", "_rows") if name in vars(law))


@pytest.mark.parametrize(("make", "cls", "inside", "outside"), CASES)
def test_subclasses_expand_to_themselves(make, cls, inside, outside):
    same = type("Same", (cls,), {})
    law = make(same)
    assert type(law.expand([2])) is same

    def other_init(self, *args, **options):
        cls.__init__(self, *args, **options)

    # Pyro asks subclasses with a constructor of their own to say how they expand.
    with pytest.raises(NotImplementedError, match="expand"):
        make(type("Other", (cls,), {"__init__": other_init})).expand([2])


@pytest.mark.parametrize(("make", "cls", "inside", "outside"), CASES)
def test_validation_is_the_laws_own_or_the_setting_of_the_moment(make, cls, inside, outside):
    checked, loose, open_ended = make(validate_args=True), make(validate_args=False), make()
    wrong = torch.full(checked.event_shape, -3.0) if outside is None else torch.tensor(outside)
    for law in (checked, checked.expand([2])):
        assert law._validate_args is True
        with pyro.validation_enabled(False), pytest.raises(InputError, match="value"):
            law.log_prob(wrong)
    for law in (loose.expand([2]), pickle.loads(pickle.dumps(loose)), copy.copy(loose), copy.deepcopy(loose)):
        assert law._validate_args is False
    for law in (open_ended, open_ended.expand([2])):
        assert "_validate_args" not in vars(law)
        for setting in (True, False):
            with pyro.validation_enabled(setting):
                assert law._validate_args is setting
        with pyro.validation_enabled(True), pytest.raises(InputError, match="value"):
            law.log_prob(wrong)


@pytest.mark.parametrize(("make", "name"), [(_log_linear, "theta"), (_roots, "psi")], ids=["log-linear", "roots"])
def test_parameters_that_change_in_place_are_looked_at_again(make, name):
    value = torch.tensor([0.0, 1.0])
    with pyro.validation_enabled(False):
        law = make()
        tensor, before = getattr(law, name), law.log_prob(value)
        kept = tensor.clone()
        tensor.fill_(torch.nan)
        assert bool(law.log_prob(value).isnan()) and bool(law.expand([2]).log_prob(value).isnan().all())
        tensor.copy_(kept)
        assert torch.equal(law.log_prob(value), before)
    tensor.mul_(2.0)
    assert not torch.equal(law.log_prob(value), before)
    strict = make()
    getattr(strict, name).fill_(torch.nan)
    for _ in range(2):  # every time, not only the first
        with pytest.raises(InputError, match=f"{name}: expected finite"):
            strict.log_prob(value)
