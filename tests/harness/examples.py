"""How many examples a property is tried with: each run draws its own, so few in every run are
many in time.
"""

from __future__ import annotations

import os
from typing import Final

from hypothesis import HealthCheck, settings

VARIABLE: Final = "ANABRANCH_TEST_EXAMPLES"
"""Times as many as a property asks for. ``make unit`` gives less than one, ``make nightly``
more.
"""

_MIN: Final = 20
_USUALLY: Final = 100


def examples(count: int) -> settings:
    """``count`` examples, times what the environment says."""
    return settings(max_examples=max(_MIN, round(count * float(os.environ.get(VARIABLE, "1")))))


def unhurried() -> None:
    """Set the defaults of all properties: the usual number of examples, times what the environment
    says, and no deadline, which a busy machine would miss.
    """
    settings.register_profile(
        "unhurried",
        examples(_USUALLY),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("unhurried")
