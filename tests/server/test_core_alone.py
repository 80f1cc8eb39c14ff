"""The core without the packages above it."""

import shutil
import subprocess
import sys
from pathlib import Path

from hushmote.simulator.broker import MosquittoBroker

ROOT = Path(__file__).parents[2]


def test_counts_and_answers_without_other_packages(tmp_path: Path):
    for folder in ("device", "server"):
        caches = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, tmp_path / "hushmote" / folder, ignore=caches)
    (tmp_path / "hushmote" / "__init__.py").touch()
    with MosquittoBroker() as broker:
        script = [sys.executable, Path(__file__).with_name("core_alone.py"), broker.host, str(broker.port)]
        environment = {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        run = subprocess.run(
            script, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("50 of 50 counted")
    assert run.stdout.endswith("50 answer\n")
