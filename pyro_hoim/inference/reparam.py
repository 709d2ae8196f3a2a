"""A reparametrisation that names states by one number, for inference that knows scalar discrete sites only."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from pyro import sample
from pyro.distributions import Categorical, Delta, MaskedDistribution
from pyro.infer.reparam.reparam import Reparam

from ..checks import broadcast_shapes
from ..core.laws.expansion import list_states
from ..core.laws.shared import FiniteLaw
from ..errors import wrong_type
from ..generalized_root.law import GeneralizedRoot


class StateIndexReparam(Reparam):
    """Replace a latent state x by its index among all states, ``<name>_index``, and x by a function of it.

    Pyro's :func:`~pyro.infer.infer_discrete` and ``TraceEnum_ELBO.compute_marginals`` (1.9) read enumerated sites as if
    they had no event dimensions, so they cannot give the posterior of a vector-valued site. After this
    reparametrisation the enumerated site is an ordinary :class:`~pyro.distributions.Categorical` over the states, last
    variable fastest, with the same law, observation, mask, scale, plates and ``infer`` options, as
    ``{"enumerate": "parallel"}``. A law may be masked or have batch dimensions turned into event dimensions. Exact; the
    number of states must be within
    :attr:`HierarchicalLogLinear.max_enumerated_states <pyro_hoim.log_linear.HierarchicalLogLinear>` (the same of a
    :class:`~pyro_hoim.boltzmann.BoltzmannMachine`, and of a :class:`~pyro_hoim.generalized_root.GeneralizedRoot` over
    bounded counts), or the ``max_states`` of a dependency network.

    Raises:
        InputTypeError: on use, the site's law is none of these.
        InputError: on use, counts or reals without a bound; an observed state outside the support, when validating.
        IntractableError: on use, there are too many states.

    Example:
        >>> import pyro
        >>> from pyro_hoim import Domain, HierarchicalLogLinear, InteractionHypergraph
        >>> hypergraph = InteractionHypergraph.saturated(Domain.from_cardinalities([2, 2]))
        >>> def model():
        ...     law = HierarchicalLogLinear(hypergraph, torch.zeros(3))
        ...     return pyro.sample("x", law, infer={"enumerate": "parallel"})
        >>> reparametrised = pyro.poutine.reparam(model, config={"x": StateIndexReparam()})
        >>> list(pyro.poutine.trace(reparametrised).get_trace().stochastic_nodes)
        ['x_index']
        >>> from pyro.infer import TraceEnum_ELBO
        >>> TraceEnum_ELBO(max_plate_nesting=0).compute_marginals(reparametrised, lambda: None)["x_index"].probs
        tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """

    def apply(self, msg: Any) -> Any:
        """Return the message of the deterministic site that takes the place of the state."""
        # The law inside masks and event dimensions, which the index gets as well.
        law, around = msg["fn"], list[Any]()
        while isinstance(law, MaskedDistribution | torch.distributions.Independent):
            around.append(law)
            law = law.base_dist
        logits = _logits(msg["name"], law)
        index_law: Any = Categorical(logits=logits)
        for fn in reversed(around):
            is_mask = isinstance(fn, MaskedDistribution)
            index_law = index_law.mask(fn._mask) if is_mask else index_law.to_event(fn.reinterpreted_batch_ndims)
        states = _states(law)
        # An observed state has an observed index.
        value, observed = msg["value"], None
        if value is not None:
            if law._validate_args:
                law._validate_sample(value)
            cards = [int(largest) + 1 for largest in states.amax(0)]
            strides = torch.tensor([math.prod(cards[k + 1 :]) for k in range(len(cards))], device=value.device)
            observed = (value.long() * strides).sum(-1)
        # Enumeration and scopes of pyro.markov go over to the site of the index.
        infer = _infer_of(msg["name"])
        options: Any = _options(msg["name"], infer)
        if value is not None:
            options["is_observed"] = msg["is_observed"]
        index = sample(f"{msg['name']}_index", index_law, obs=observed, infer=options)
        if "_markov_scope" in infer:  # the state depends on its index, of which that handler knew nothing
            infer["_markov_scope"][f"{msg['name']}_index"] = infer["_markov_depth"]
        state: Any = value
        if index is not observed:
            # In a plate, enumerated indices have size one where the state has to have the size of the plate.
            batch = broadcast_shapes(index.shape, law.batch_shape)
            state = states[index].expand(*batch, len(law.domain))
        # Log-densities of the precision of the law, which Pyro sums with others; a mask that is no tensor loses it.
        zeros: Any = logits.new_zeros(state.shape[: state.dim() - msg["fn"].event_dim])
        known = Delta(state, zeros, msg["fn"].event_dim).mask(torch.zeros((), dtype=torch.bool, device=zeros.device))
        return {"fn": known, "value": state, "is_observed": True}


def _states(law: Any) -> torch.Tensor:
    """The states that an index counts, (num_states, d); of a finite law the impossible ones too."""
    if isinstance(law, FiniteLaw):
        return list_states(law.domain.cardinalities, law._law.device)
    return law.enumerate_support(expand=False).reshape(-1, len(law.domain))


def _logits(name: str, law: Any) -> torch.Tensor:
    """Log-probabilities of the states of a site's law, (*batch, num_states)."""
    if isinstance(law, FiniteLaw):
        law._require_enumerable()
        return law.log_prob_table.flatten(len(law.batch_shape))
    if isinstance(law, GeneralizedRoot):
        return law.log_prob(law.enumerate_support()).movedim(0, -1)
    expected = "the law to be a HierarchicalLogLinear, a BoltzmannMachine, a GeneralizedRoot or a DependencyNetwork"
    raise wrong_type(f"site {name!r}", expected, law)


class _Scope(Counter[str]):
    """What a site inside :func:`pyro.markov` depends on, by name, without the site that it stands for."""

    def __init__(self, own: str) -> None:
        self.own = own
        super().__init__()

    def update(self, names: Iterable[str] = (), /) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().update(name for name in names or () if name != self.own)


def _infer_of(name: str) -> dict[str, Any]:
    """What the message of the site that is replaced has under ``infer``, which Pyro does not hand over."""
    frame = sys._getframe(1)
    while frame is not None:
        message: Any = frame.f_locals.get("msg")
        if isinstance(message, dict) and message.get("name") == name and "infer" in message:
            return message["infer"]
        frame = frame.f_back
    return {}


def _options(name: str, infer: dict[str, Any]) -> dict[str, Any]:
    """The options of the site of the index; what handlers note for themselves they note again, but for one thing."""
    options = {key: value for key, value in infer.items() if not key.startswith("_")}
    if "_markov_scope" in infer:
        options["_markov_scope"] = _Scope(name)
    return options
