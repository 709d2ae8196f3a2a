"""What every family of models offers to the command line, and the registry of families; nothing here knows one."""

from .family import Answer, Asked, Family, Option, Plan, Request, Source, Study, families, family_named, register

__all__ = [
    "Answer",
    "Asked",
    "Family",
    "Option",
    "Plan",
    "Request",
    "Source",
    "Study",
    "families",
    "family_named",
    "register",
]
