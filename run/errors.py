"""A user's mistake: which exceptions tell of one, and its wording on one line."""

from typing import Any

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

MISTAKES = (HydraException, OmegaConfBaseException, ValueError, TypeError, OSError)


class Refused(ValueError):
    """The folder holds a run that this command must not touch."""


def one_line(error: BaseException) -> str:
    r"""What went wrong, on one line. Where Hydra wraps the user's mistake, the cause says it.

    >>> one_line(ValueError("two\nlines"))
    'two lines'
    """
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    wrapped = isinstance(chain[-1], ValueError) or "Error in call to target" in str(error)
    parts: list[Any] = chain[-1:] if wrapped else list(dict.fromkeys([chain[0], chain[-1]]))
    if str(error).startswith("Config group override must be"):  # Hydra on norm=null
        parts = [f"{error}; give one of the group's names, for instance norm=none"]
    line = " ".join(" ".join(map(str, parts)).split()) or type(error).__name__
    return line.replace(", set env var HYDRA_FULL_ERROR=1 to see chained exception", "")
