"""Install Home Assistant's core with its MQTT integration: python get_home_assistant.py [FOLDER].

FOLDER is a virtual environment, .rig/homeassistant by default. 2024.3.3 is the last version for Python 3.11.
home_assistant.txt lists those of its 80 requirements that home_assistant_run.py loads.
"""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / ".rig" / "homeassistant"
PACKAGES = Path(__file__).with_name("home_assistant.txt")


def python(folder: Path = FOLDER) -> Path | None:
    """Return the interpreter that has Home Assistant installed, or None."""
    path = folder / "bin" / "python"
    return path if (folder / "ready").exists() else None


def get(folder: Path = FOLDER) -> None:
    """Install Home Assistant unless it is already installed."""
    if python(folder) is None:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        command = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-deps", "-r", PACKAGES]
        subprocess.run(command, check=True)
        (folder / "ready").touch()


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    get(target)
    print(target)
