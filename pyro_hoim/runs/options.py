"""Where a long run is kept and whether it tells of its progress, for every function that takes minutes or more."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ..errors import check_type, refused, unexpected
from .checkpoint import RunFile

__all__ = ["RunOptions", "checked_run"]


@dataclass(frozen=True)
class RunOptions:
    """How a long run is kept and shown.

    Attributes:
        checkpoint: file (of what learns whole models: folder) from which an interrupted run can be continued.
        resume: continue from ``checkpoint``, which must be given, if it exists; the other arguments must be the same.
        progress: show on standard error how far the run has come.

    Example:
        >>> RunOptions(resume=True)
        Traceback (most recent call last):
        pyro_hoim.errors.InputError: resume: expected the path of a checkpoint, received none; pass checkpoint=...
    """

    checkpoint: str | os.PathLike[str] | None = None
    resume: bool = False
    progress: bool = False

    def __post_init__(self) -> None:
        if self.resume and self.checkpoint is None:
            expected = "the path of a checkpoint"
            raise unexpected("resume", expected, hint="pass checkpoint=...", received="none", code="conflict")

    def folder(self) -> Path | None:
        """The checkpoint of what learns whole models, a folder that is made inside an existing one."""
        if self.checkpoint is None:
            return None
        folder = Path(self.checkpoint).absolute()
        try:
            folder.mkdir(exist_ok=True)
        except FileNotFoundError as error:
            problem = f"the folder {folder.parent} does not exist"
            raise refused("checkpoint", problem, "create it first", code="no-file") from error
        except FileExistsError as error:
            raise refused("checkpoint", f"{folder} is a file; expected a folder", code="no-file") from error
        except OSError as error:
            problem = f"the folder {folder} cannot be made ({error.strerror or error})"
            raise refused("checkpoint", problem, "choose another", code="no-file") from error
        return folder

    def file(self) -> RunFile | None:
        """The checkpoint, if there is to be one; refused as :class:`~pyro_hoim.runs.checkpoint.RunFile` says."""
        return None if self.checkpoint is None else RunFile(self.checkpoint, self.resume)


def checked_run(run: RunOptions | None) -> RunOptions:
    """The options, or those by default."""
    if run is None:
        return RunOptions()
    check_type(run, RunOptions, "run")
    return run
