"""What an operator sees of a process: metrics, health, structured logs, and the HTTP server for them.

All metrics are declared in `Metrics`. `Health` answers the probes, `http.serve` serves both over HTTP; it is not loaded
with this package, because most commands have no port. `set_up_logs` sends every log line of the process to standard
error, without attribute values. Every command has logs; the other modules are loaded when a name of them is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from shoal.observability.logs import (
    descriptors_remedy,
    error_code,
    escape_control_characters,
    install_exception_hooks,
    install_loop_exception_handler,
    is_out_of_descriptors,
    join_logs,
    logger,
    raise_location,
    set_up_logs,
)

if TYPE_CHECKING:
    from shoal.observability.certificates import certificate_warning
    from shoal.observability.compilation import TABLE_COMPILE_S, CompilationNotice, KernelCompiler, free_memory
    from shoal.observability.metrics import (
        SAME_INSTANCE,
        ClusterFigures,
        Health,
        Metrics,
        log_refusals,
        log_totals,
        three_digits,
        warn_unless_representative,
    )

__all__ = [
    "SAME_INSTANCE",
    "TABLE_COMPILE_S",
    "ClusterFigures",
    "CompilationNotice",
    "Health",
    "KernelCompiler",
    "Metrics",
    "certificate_warning",
    "descriptors_remedy",
    "error_code",
    "escape_control_characters",
    "free_memory",
    "install_exception_hooks",
    "install_loop_exception_handler",
    "is_out_of_descriptors",
    "join_logs",
    "log_refusals",
    "log_totals",
    "logger",
    "raise_location",
    "set_up_logs",
    "three_digits",
    "warn_unless_representative",
]

if not TYPE_CHECKING:
    _MODULES = {
        "certificates": ("certificate_warning",),
        "compilation": ("TABLE_COMPILE_S", "CompilationNotice", "KernelCompiler", "free_memory"),
        "metrics": (
            "SAME_INSTANCE",
            "ClusterFigures",
            "Health",
            "Metrics",
            "log_refusals",
            "log_totals",
            "three_digits",
            "warn_unless_representative",
        ),
    }

    def __getattr__(name: str) -> object:
        """Import a name when it is first used."""
        for module, names in _MODULES.items():
            if name in names:
                found = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
                return found
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
