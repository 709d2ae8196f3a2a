"""Commands that fit, from lists of words in which ``learn`` or ``structures`` may stand anywhere."""

from typing import Any

VERBS = ("learn", "structures")


def verb_first(*words: Any) -> list[Any]:
    """The words of a command, the verb before the others; ``fit`` where none is among them."""
    verbs = [word for word in words if word in VERBS]
    return [verbs[0] if verbs else "fit", *(word for word in words if word not in VERBS)]
