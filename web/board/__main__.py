"""`python -m hushmote.web.board FOLDER` writes the browser board's files for any static server."""

import sys
from pathlib import Path

from .files import copy

if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
    sys.exit("usage: python -m hushmote.web.board FOLDER")
copy(Path(sys.argv[1]))
