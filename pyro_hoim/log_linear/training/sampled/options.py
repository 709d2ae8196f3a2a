"""Settings of training by weighted chains. Private to training; :class:`SampledTraining` is exported."""

from dataclasses import dataclass
from typing import Literal

import torch

from ....checks import checked_device
from ....errors import check_choice, check_fraction, check_positive, check_whole, out_of_range
from ...chains.gibbs import EngineName

_WHOLE = {
    "num_chains": 16,
    "num_iterations": 1,
    "sweeps_per_step": 1,
    "refresh_chains": 16,
    "refresh_temperatures": 1,
    "margin_states": 1,
    "loss_budget": 1,
}
_POSITIVE = ("learning_rate", "damping", "max_change", "smoothing", "loss_standard_error")


@dataclass(frozen=True)
class SampledTraining:
    r"""How chains are moved, weighted and checked while parameters are fitted to them.

    Args:
        num_chains: chains of the population; the error of every gradient entry is about
            :math:`\sqrt{p (1 - p) / \mathrm{num\_chains}}`.
        num_iterations: parameter steps of one call of ``train``; the rate falls linearly to zero over them.
        learning_rate: of ``optimiser``, the highest of the schedule; with Adam in nats per step.
        damping: added to the root mean square of the gradient in Adam. The larger it is, the less sampling error
            wanders into states that no chain visits, and the slower are small gradients.
        warm_up: share of the iterations over which the rate rises to ``learning_rate``: at the start all
            parameters move together, and a high rate makes large modes far from the data.
        max_change: largest standard deviation, over the weighted chains, of the change of a state's energy in one
            step, in nats; longer steps are shortened.
        sweeps_per_step: Gibbs sweeps after every parameter step.
        blocks: what a sweep draws: single variables (``"sites"``) or all variables of an interaction as a whole
            (``"interactions"``, those of up to 4,096 joint states): better mixing, at a cost of many visits.
        emphasis: share of the visits of a sweep that go to the interactions that joined with the last change of the
            collection, see :class:`~pyro_hoim.runs.GibbsSchedule`; None for no more than to others.
        optimiser: ``"adam"``, or plain steps along the ``"gradient"``, as in the paper with a rate of 0.5: slow where
            margins are small, and with many interactions held back by ``max_change`` alone.
        chains: ``"weighted"`` chains follow the parameters from the law of the start by importance weights;
            ``"persistent"`` ones start at the training rows and carry no weights (persistent contrastive divergence):
            they never leave the modes of the data, and are there for comparison.
        resample_below: weighted chains are resampled where their effective share falls below it.
        restart: every call of ``train`` begins again from the start. Otherwise tables and chains go on,
            which is faster, but weights cannot find modes that appear when many interactions join late. ``"doubt"``
            goes on where the last check of the call before agreed, for half the iterations after interactions joined
            and a quarter else, and begins again at the first check that objects; a search also has it begin again
            where annealed runs still give log Z no error bar (``SampledTrainer.retrained``), and in ``learn`` of fewer
            than 50 columns where annealed weights were less even than an effective share of 0.9.
        start: law that annealed runs begin with, from which states are drawn exactly: a directed ``"network"`` of up to
            three parents per variable, close to the rows, the best ``"tree"`` among the pairs of the collection,
            or the ``"independent"`` law, which also gives a quarter of the chains beside the others, since it
            finds modes far from the rows. Training begins with the tree, or with the independent law.
        average: share of the last iterations whose parameters are averaged.
        smoothing: count added to every level of a variable in the law that training and annealed runs start from.
        refresh_every: iterations between two checks of the chains against a fresh annealed population, which joins
            them; after checks whose weights stayed even and that did not object, nor one of the three before, up to
            four times as many. None never checks, not even at the end.
        refresh_chains, refresh_temperatures: of that population; a quarter of the temperatures, or half, does on the
            way while its weights stay even and it agrees with the chains.
        margin_states: states that margins are counted in, at least.
        loss_standard_error: of log Z, in nats, below which annealed runs are not made longer.
        loss_budget: most sweeps (number of chains times temperatures) of one annealed run for log Z.
        seed: of everything random.
        engine: of the chains, see :class:`~pyro_hoim.log_linear.GibbsChains`.
        precision: of the conditionals.
        device: where the chains run, as PyTorch names it; another one than the CPU needs the engine "torch" or "auto".
        progress: show a bar on standard error.

    Raises:
        InputError: an option outside its range.

    References:
        Paper 1, appendix B.5.

    Example:
        >>> SampledTraining(num_iterations=200).num_chains
        4000
    """

    num_chains: int = 4000
    num_iterations: int = 1000
    learning_rate: float = 0.02
    damping: float = 3e-3
    warm_up: float = 0.2
    max_change: float = 0.5
    sweeps_per_step: int = 1
    blocks: Literal["sites", "interactions"] = "sites"
    emphasis: float | None = None
    optimiser: Literal["adam", "gradient"] = "adam"
    chains: Literal["weighted", "persistent"] = "weighted"
    resample_below: float = 0.5
    restart: bool | Literal["doubt"] = True
    start: Literal["network", "tree", "independent"] = "network"
    average: float = 0.1
    smoothing: float = 0.5
    refresh_every: int | None = 50
    refresh_chains: int = 2000
    refresh_temperatures: int = 200
    margin_states: int = 20_000
    loss_standard_error: float = 0.02
    loss_budget: int = 2**23
    seed: int = 0
    engine: EngineName = "auto"
    precision: torch.dtype = torch.float32
    device: str = "cpu"
    progress: bool = False

    def __post_init__(self) -> None:
        for name, least in _WHOLE.items():
            check_whole(getattr(self, name), name, least)
        if self.refresh_every is not None:
            check_whole(self.refresh_every, "refresh_every")
        check_whole(self.seed, "seed", 0, 2**62 - 1)
        for name in _POSITIVE:
            check_positive(getattr(self, name), name)
        # Shares.
        for name in ("resample_below", "average"):
            if not 0 < getattr(self, name) <= 1:
                raise out_of_range(name, "a share within (0, 1]", getattr(self, name))
        if not 0 <= self.warm_up < 1:
            raise out_of_range("warm_up", "a share within [0, 1)", self.warm_up)
        if not isinstance(self.restart, bool) and self.restart != "doubt":
            raise out_of_range("restart", "True, False or 'doubt'", self.restart)
        # Choices.
        object.__setattr__(self, "device", str(checked_device(self.device, "device")))
        check_choice(self.blocks, ("sites", "interactions"), "blocks")
        if self.emphasis is not None:
            check_fraction(self.emphasis, "emphasis")
        check_choice(self.optimiser, ("adam", "gradient"), "optimiser")
        check_choice(self.chains, ("weighted", "persistent"), "chains")
        check_choice(self.start, ("network", "tree", "independent"), "start")
