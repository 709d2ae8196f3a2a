"""Where families of models live, so that one is imported when its kind is met; the top of the package fills this in."""

KINDS: dict[str, tuple[str, str]] = {}
"""By the kind in their files: the word of commands, and the module that has the ``FAMILY``."""

ENTRY_POINTS = "pyro_hoim.families"
"""Group of the entry points of installed packages; their values are families."""
