"""What a package with a backend, a family or a law of its own tests it with: suites, oracles, assertions.

The suites hold a class to its contract and name every check that failed: :func:`check_backend` an exact partition
backend, :func:`check_distribution` a law over level codes, :func:`check_result` what a family returns. The oracles are
brute force over every joint state (:mod:`~pyro_hoim.testing.oracles`). The assertions test random output, posteriors
and transition matrices at a stated false-alarm rate, and exceptions (``assertions``).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
