"""A reparametrisation that names states by one number, for inference that knows scalar discrete sites only."""

from __future__ import annotations

import math
from typing import Any

import torch
from pyro import sample
from pyro.distributions import Categorical, Delta
from pyro.infer.reparam.reparam import Reparam

from ..dependency_network.law import DependencyNetwork
from ..errors import wrong_type
from ..generalized_root.law import GeneralizedRoot
from ..log_linear.laws.law import HierarchicalLogLinear

__all__ = ["StateIndexReparam"]


class StateIndexReparam(Reparam):
    """Replace a latent state x by its index among all states, ``<name>_index``, and x by a function of it.

    Pyro's :func:`~pyro.infer.infer_discrete` (1.9) reads values of enumerated sites as if they had no event
    dimensions, so it cannot sample the posterior of a vector-valued site. After this reparametrisation the enumerated
    site is an ordinary :class:`~pyro.distributions.Categorical` over the states, last variable fastest, with the same
    law. Exact; the number of states must be within
    :attr:`HierarchicalLogLinear.max_enumerated_states <pyro_hoim.log_linear.HierarchicalLogLinear>` (the same of a
    :class:`~pyro_hoim.generalized_root.GeneralizedRoot` over bounded counts), or the ``max_states`` of a dependency
    network.

    Raises:
        InputTypeError: on use, the site's law is no HierarchicalLogLinear, GeneralizedRoot or DependencyNetwork.
        InputError: on use, counts or reals without a bound.
        IntractableError: on use, there are too many states.

    Example:
        >>> import pyro
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> hypergraph = InteractionHypergraph.saturated(Domain.from_cardinalities([2, 2]))
        >>> def model():
        ...     return pyro.sample("x", HierarchicalLogLinear(hypergraph, torch.zeros(3)))
        >>> reparametrised = pyro.poutine.reparam(model, config={"x": StateIndexReparam()})
        >>> list(pyro.poutine.trace(reparametrised).get_trace().stochastic_nodes)
        ['x_index']
    """

    def apply(self, msg: Any) -> Any:
        """Return the message of the deterministic site that takes the place of the state."""
        law, value = msg["fn"], msg["value"]
        if not isinstance(law, (HierarchicalLogLinear, GeneralizedRoot, DependencyNetwork)):
            expected = "the law to be a HierarchicalLogLinear, a GeneralizedRoot or a DependencyNetwork"
            raise wrong_type(f"site {msg['name']!r}", expected, law)
        states = law.enumerate_support(expand=False).reshape(-1, len(law.domain))
        cards = [int(largest) + 1 for largest in states.amax(0)]
        if isinstance(law, GeneralizedRoot):
            logits = law.log_prob(law.enumerate_support()).movedim(0, -1)
        else:
            logits = law.log_prob_table.reshape((*law.batch_shape, len(states)))
        observed = None
        if value is not None:
            strides = torch.tensor([math.prod(cards[k + 1 :]) for k in range(len(cards))], device=value.device)
            observed = (value.long() * strides).sum(-1)
        index = sample(f"{msg['name']}_index", Categorical(logits=logits), obs=observed)
        state = states[index] if value is None else value
        return {"fn": Delta(state, event_dim=1).mask(False), "value": state, "is_observed": True}
