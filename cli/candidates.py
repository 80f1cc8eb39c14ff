"""A file of candidate texts to look for: UTF-8, one per line."""

from pathlib import Path

from ..server.answers.texts import LONGEST, MAX_CANDIDATES
from ..server.errors import UsageError, refusing


def read_candidates(path: Path) -> list[str]:
    """Return a file's texts in order, without empty lines.

    Raises:
        UsageError: If the file cannot be read, has no texts or more than MAX_CANDIDATES, lists a text twice,
            or has a line that is not UTF-8 or exceeds LONGEST bytes.
    """
    with refusing(UsageError, f"read {path}"):
        data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")  # the byte order mark that some editors write
    lines: dict[str, int] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        line = line.removesuffix(b"\r")
        if len(line) > LONGEST:
            raise UsageError(
                f"{path}, line {number}: a candidate can have at most {LONGEST} bytes because boards "
                f"ignore the rest; this one has {len(line):,}"
            )
        try:
            text = line.decode()
        except UnicodeDecodeError:
            raise UsageError(f"{path}, line {number} is not UTF-8: save the file as UTF-8") from None
        first_line = lines.setdefault(text, number) if text else number
        if first_line != number:
            raise UsageError(f"{path}: {text} is listed twice, on lines {first_line} and {number}")
    if not lines:
        raise UsageError(f"{path} has no candidates: write one text per line")
    if len(lines) > MAX_CANDIDATES:
        raise UsageError(f"{path} has {len(lines):,} candidates; list at most {MAX_CANDIDATES:,}")
    return list(lines)
