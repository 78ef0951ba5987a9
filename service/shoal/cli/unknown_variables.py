"""Misspelt environment variables of options: a start without the option that was meant is refused.

A variable that resembles none of Shoal is left alone: it may be another program's. So are those that Kubernetes sets in
every pod for a Service, such as ``SHOAL_SERVICE_HOST`` and ``SHOAL_PORT_9464_TCP`` for one with the name `shoal`.
`shoal.settings` checks the names that begin with ``SHOAL_KAFKA__``.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from shoal.errors import ParameterError

__all__ = ["VARIABLES", "check_variables"]

VARIABLES = (
    "SHOAL_FROM",
    "SHOAL_HTTP",
    "SHOAL_HTTP_CERTFILE",
    "SHOAL_HTTP_HOST",
    "SHOAL_HTTP_KEYFILE",
    "SHOAL_HTTP_KEY_PASSWORD",
    "SHOAL_HTTP_KEY_PASSWORD_FILE",
    "SHOAL_HTTP_TOKEN",
    "SHOAL_HTTP_TOKEN_FILE",
    "SHOAL_LOG",
    "SHOAL_LOG_LEVEL",
)
"""The variables of all commands. The parser of one command does not know those of the others."""
SIMILARITY = 0.85
_SECTIONS = ("ATTRIBUTES", "PRIVACY", "STREAM", "STEERING")
"""Sections of the policy that no variable can change."""
_SETTINGS, _MISSPELT_SETTINGS = "SHOAL_KAFKA__", "SHOAL_KAFKA_"
_HOST_OF_SERVICE = "_SERVICE_HOST"


def check_variables(environment: Mapping[str, str]) -> None:
    """Refuse variables whose names resemble those of options, or of Kafka settings.

    Raises
    ------
    ParameterError
        Names each such variable with the one that may be meant. It quotes no value.
    """
    unknown = [name for name in sorted(environment) if name.startswith("SHOAL_") and name not in VARIABLES]
    own = [name for name in unknown if not name.startswith(_SETTINGS) and not _is_of_service(name, environment)]
    faults = [fault for name in own if (fault := _fault(name))]
    if faults:
        raise ParameterError("\n  ".join(faults))


def _fault(name: str) -> str:
    """Return what is wrong with a variable; an empty text if it may be another program's."""
    section, separator, setting = name.removeprefix("SHOAL_").partition("__")
    if separator and section in _SECTIONS:
        return (
            f"{name}: variables can set settings of section kafka only; "
            f"set {section.lower()}.{setting.lower().replace('__', '.')} in the policy"
        )
    meant = _meant(name)
    return f"{name}: unknown variable; did you mean {meant}?" if meant else ""


def _meant(name: str) -> str:
    """Return the most similar variable; an empty text if none is similar."""
    if name.startswith(_MISSPELT_SETTINGS):
        return _SETTINGS + name.removeprefix(_MISSPELT_SETTINGS)
    return next(iter(get_close_matches(name, VARIABLES, 1, SIMILARITY)), "")


def _is_of_service(name: str, environment: Mapping[str, str]) -> bool:
    """Return whether Kubernetes sets this variable for a Service: it sets the host of the Service, too."""
    services = [other.removesuffix(_HOST_OF_SERVICE) for other in environment if other.endswith(_HOST_OF_SERVICE)]
    endings = (_HOST_OF_SERVICE, "_SERVICE_PORT", "_SERVICE_PORT_", "_PORT", "_PORT_")
    return any(
        name == service + ending or (ending.endswith("_") and name.startswith(service + ending))
        for service in services
        for ending in endings
    )
