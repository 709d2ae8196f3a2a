r"""Which node densities over the reals can be normalised: the one rule that kernels and checks share.

As the value grows, the statistic of the highest power whose parameter is not zero outweighs all others, so that
parameter must be negative. The second statistic of the Gaussian family, x itself, grows to one side whatever the sign.
"""
# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false

from ...compute.jit import njit

_GAUSSIAN = 3


@njit(cache=True)
def decays(slopes):
    """Whether exp(sum of slopes times falling powers) falls: the first slope that is not zero is negative."""
    for slope in slopes:
        if slope != 0.0:
            return slope < 0.0
    return False


@njit(cache=True)
def is_integrable(code, eta):
    """Whether the node density of a family of reals, by its code, has a finite integral at eta (k,)."""
    if code != _GAUSSIAN or eta.shape[0] < 2 or eta[0] != 0.0 or eta[1] == 0.0:
        return decays(eta)
    return False
