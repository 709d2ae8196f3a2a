"""Public oracles, statistical assertions, random models and the conformance suite for new models and backends.

All are usable from other packages' tests: brute force over every joint state (:mod:`~pyro_hoim.testing.oracles`), tests
of random output with a stated false-alarm rate and of exceptions (``assertions``), hypothesis strategies
(``strategies``), transition matrices of Gibbs sweeps (``transitions``), models with known log Z that is hard to
estimate (``hard_models``, and their published choice, ``hard_suite``), and the suites that a new class registers with:
``check_distribution``, ``check_backend``, ``check_engine`` and ``check_trainer``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
