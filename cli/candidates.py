"""A file of texts that an experiment is asked about: UTF-8, one a line."""

from pathlib import Path

from ..server.answers.texts import LONGEST, MOST_CANDIDATES
from ..server.errors import UsageError, refusing


def read_candidates(path: Path) -> list[str]:
    """The texts in a file, in its order; empty lines are passed over.

    Raises UsageError with one line: no such file, a line that is not UTF-8 or has more than LONGEST bytes, a
    text that is there twice, none at all, or more than MOST_CANDIDATES.
    """
    with refusing(UsageError, f"read {path}"):
        data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")  # the mark that some editors begin with
    lines: dict[str, int] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        line = line.removesuffix(b"\r")
        if len(line) > LONGEST:
            raise UsageError(
                f"{path}, line {number}: a candidate has at most {LONGEST} bytes, as boards look at no more; "
                f"this one has {len(line):,}"
            )
        try:
            text = line.decode()
        except UnicodeDecodeError:
            raise UsageError(f"{path}, line {number} is not UTF-8: save the file as UTF-8") from None
        first = lines.setdefault(text, number) if text else number
        if first != number:
            raise UsageError(f"{path}: {text} is listed twice, in lines {first} and {number}")
    if not lines:
        raise UsageError(f"{path} has no candidate: write one text a line")
    if len(lines) > MOST_CANDIDATES:
        raise UsageError(f"{path} has {len(lines):,} candidates: ask for at most {MOST_CANDIDATES:,} at once")
    return list(lines)
