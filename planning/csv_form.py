"""Finds the form of a CSV file: its encoding, delimiter, title lines, heading, units and row names."""

import codecs
import csv
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, pairwise, zip_longest
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from ..server.errors import HushmoteError, refusing
from ..server.words.numbers import counted
from .written_numbers import is_blank_text, is_date, parse_number, unit_in

DELIMITERS = (",", ";", "\t", "|")
_NO_DELIMITER = "\x1f"  # of a file with one column whose cells have unquoted commas
_SAMPLE_RECORDS, _SAMPLE_BYTES = 400, 1 << 16
_BLOCK_BYTES = 1 << 20
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\s*$', re.IGNORECASE)
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_GZIP = b"\x1f\x8b"
_CONTROL_BYTES = re.compile(rb"[\x01-\x08\x0e-\x19\x7f]")
_OTHER_FILES = (
    (re.compile(rb"PK\x03\x04"), "an Excel workbook or a ZIP archive; save the sheet as CSV"),
    (re.compile(rb"\s*(?:\{\s*[\"}]|\[\s*[\[{])"), "JSON; convert it to CSV"),
    (re.compile(rb"\s*<[!?a-zA-Z]"), "HTML or XML; save its table as CSV"),
)

Record = list[str]


@dataclass(frozen=True)
class CsvForm:
    """The form of a CSV file.

    Attributes:
        path: The file, which may be compressed with gzip.
        encoding: Its encoding, as a codec's name.
        delimiter: The character between cells.
        skipped_lines: Number of lines above the first row of data.
        names: The columns' names, one for each cell of a row: "" for the column of row names, and "#1", "#2"
            and so on if there is no heading.
        units: The columns' units, from a line of units; "" if there is none.
        decimal: The decimal separator in the columns whose numbers are unambiguous, or "".
        assumptions: Sentences on what was assumed.
    """

    path: Path
    encoding: str
    delimiter: str
    skipped_lines: int
    names: tuple[str, ...]
    units: tuple[str, ...]
    decimal: str
    assumptions: tuple[str, ...]

    @contextmanager
    def open(self) -> Iterator[TextIO]:
        """Open the file for reading at the first row of data."""
        with _open(self.path) as binary, io.TextIOWrapper(binary, self.encoding, newline="") as text:
            for _ in range(self.skipped_lines):
                text.readline()
            yield text

    def line_of(self, row: int, *, is_wide: bool = False) -> int:
        """Return the number of the line on which a row of data ends.

        Args:
            row: The row, counted from 0.
            is_wide: Whether only rows with more cells than columns are counted, or only the others.
        """
        with _unlimited_cells(), self.open() as text:
            reader = csv.reader(text, delimiter=self.delimiter, skipinitialspace=True)
            rows = (r for r in reader if r and (len(r) > len(self.names)) == is_wide)
            next(islice(rows, row, None))
            return self.skipped_lines + reader.line_num

    def line_after(self, count: int) -> int:
        """Return the number of the line below so many rows, of which some may be empty."""
        with _unlimited_cells(), self.open() as text:
            reader = csv.reader(text, delimiter=self.delimiter, skipinitialspace=True)
            for _ in islice(reader, count):
                pass
            return self.skipped_lines + reader.line_num + 1


@contextmanager
def _unlimited_cells() -> Iterator[None]:
    """Let csv read cells of more than 128 KiB."""
    limit = csv.field_size_limit(1 << 30)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def find_form(path: Path, wanted: Sequence[str], error: type[HushmoteError]) -> CsvForm:
    """Return the form of a CSV file.

    Args:
        path: The file.
        wanted: Names of columns that are needed; a row that has one of them is the heading.
        error: The class of the one-line error to raise if the file is unreadable or its form unclear.
    """
    with readable(path, error):
        encoding = _encoding(path, error)
        with _open(path) as binary, io.TextIOWrapper(binary, encoding, newline="") as text:
            sample = io.StringIO(text.read(_SAMPLE_BYTES), newline="")
            is_complete = not text.read(1)
    separator = _SEPARATOR_LINE.match(sample.readline())
    first_line = 1 if separator else 0
    if not separator:
        sample.seek(0)
    lines = sample.readlines()
    delimiter = separator[1] if separator else _delimiter(lines)
    records, ends = _records(lines, delimiter, is_complete)
    if not any(map(any, records)):
        raise error(f"{path} is empty")
    width = _modal_width(records)
    start, heading, units = _heading(records, width, wanted)
    while start < len(records) and len(records[start]) > width:
        start += 1
    assumptions: list[str] = []
    if encoding not in ("utf-8", "utf-8-sig"):
        assumptions.append(f"{path} was read as {_ENCODING_NAMES[encoding]}.")
    if heading is None:
        names = [f"#{number}" for number in range(1, width + 1)]
        numbers = f"columns are #1 to #{width}" if width > 1 else "column is #1"
        assumptions.append(f"{path} has no heading, so its {numbers}.")
    else:
        names = _fit_names(path, heading, records[start:], ends[start:], first_line, assumptions, error)
    above = start - (heading is not None)
    if above > 0:
        verb = "was" if above == 1 else "were"
        assumptions.append(f"{counted(above, 'line')} of titles or units {verb} left out.")
    columns = list(zip(*(_fit(record, len(names)) for record in records[start:]), strict=True))
    return CsvForm(
        path,
        encoding,
        delimiter,
        first_line + (ends[start - 1] if start else 0),
        tuple(names),
        tuple(_fit(units, len(names))),
        _decimal(columns),
        tuple(assumptions),
    )


@contextmanager
def readable(path: Path, error: type[HushmoteError]) -> Iterator[None]:
    """Raise a one-line error if a file cannot be read or decoded."""
    try:
        with refusing(error, f"read {path}"):
            yield
    except UnicodeDecodeError as e:
        raise error(f"{path} is not valid {e.encoding}: {e.reason} at byte {e.start}") from None
    except (EOFError, zlib.error) as e:
        raise error(f"{path} is a damaged gzip file: {e}") from None


# --- Encoding --------------------------------------------------------------------------------------

_ENCODING_NAMES = {
    "cp1252": "Windows-1252, because it is not UTF-8",
    "utf-16": "UTF-16",
    "utf-32": "UTF-32",
    "utf-16-le": "UTF-16",
}


def _open(path: Path) -> BinaryIO:
    with open(path, "rb") as file:
        is_compressed = file.read(2) == _GZIP
    return cast(BinaryIO, gzip.open(path)) if is_compressed else open(path, "rb")


def _encoding(path: Path, error: type[HushmoteError]) -> str:
    """Return the encoding of a file: by its byte-order mark, or else UTF-8, UTF-16 or Windows-1252."""
    with _open(path) as file:
        head = file.read(4096)
        for pattern, kind in _OTHER_FILES:
            if pattern.match(head.removeprefix(codecs.BOM_UTF8)):
                raise error(f"{path} is {kind}")
        for mark, encoding in _BOMS:
            if head.startswith(mark):
                return encoding
        if b"\0" in head and head[1:64:2] == bytes(len(head[1:64:2])):
            return "utf-16-le"
        if control := _CONTROL_BYTES.search(head[:64]):
            raise error(f"{path} is not text: byte {control.start()} is 0x{control[0].hex()}")
        decoder, is_utf8, block = codecs.getincrementaldecoder("utf-8")(), True, head
        while block:
            if b"\0" in block:
                raise error(f"{path} is not text: it has a zero byte")
            if is_utf8:
                try:
                    decoder.decode(block)
                except UnicodeDecodeError:
                    is_utf8 = False
            block = file.read(_BLOCK_BYTES)
    if is_utf8:
        return "utf-8"
    try:
        with _open(path) as binary, io.TextIOWrapper(binary, "cp1252") as text:
            while text.read(_BLOCK_BYTES):
                pass
    except UnicodeDecodeError:
        raise error(
            f"{path} is neither UTF-8 nor Windows-1252; convert it: iconv -f ENCODING -t UTF-8 {path.name}"
        ) from None
    return "cp1252"


# --- Delimiter -------------------------------------------------------------------------------------


def _records(lines: Sequence[str], delimiter: str, is_complete: bool) -> tuple[list[Record], list[int]]:
    """Return the first records that are not empty, and for each the number of lines up to its end."""
    records: list[Record] = []
    ends: list[int] = []
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    for record in reader:
        if record:
            records.append([" ".join(cell.split()) for cell in record])
            ends.append(reader.line_num)
        if len(records) == _SAMPLE_RECORDS:
            return records, ends
    if not is_complete and len(records) > 1:  # the last one may be cut
        records.pop()
        ends.pop()
    return records, ends


def _modal_width(records: Sequence[Record]) -> int:
    """Return the most common number of cells in a row; of equally common ones, the largest."""
    widths = Counter(map(len, records))
    return max(widths, key=lambda width: (widths[width], width))


def _delimiter(lines: Sequence[str]) -> str:
    """Return the delimiter that splits most of the rows into equally many cells, at least two."""
    best, best_score = "", (0.0, 0)
    for delimiter in DELIMITERS:
        records, _ = _records(lines, delimiter, True)
        if not records:
            continue
        width = _modal_width(records)
        rows = [record for record in records if len(record) == width]
        score = (len(rows) / len(records), width)
        if width > 1 and score > best_score and not _are_decimal_commas(records, rows, delimiter):
            best, best_score = delimiter, score
    if best:
        return best
    has_commas = any(len(record) > 1 for record in _records(lines, ",", True)[0])
    return _NO_DELIMITER if has_commas else ","


def _are_decimal_commas(records: Sequence[Record], rows: Sequence[Record], delimiter: str) -> bool:
    """Return whether commas only separate the decimals of numbers below a heading without commas."""
    return (
        delimiter == ","
        and len(records[0]) == 1
        and all(len(row) == 2 and row[1].isdecimal() and row[0].lstrip("+-").isdecimal() for row in rows)
    )


# --- Heading ---------------------------------------------------------------------------------------


def _is_data(cell: str) -> bool:
    """Return whether a cell is a date or a number, possibly with a usual unit; a name may be 2.4GHz."""
    numbers = (parse_number(cell, decimal) for decimal in ".,")
    return is_date(cell) or any(n is not None and (not n.unit or unit_in(n.unit)) for n in numbers)


def _heading(
    records: Sequence[Record], width: int, wanted: Sequence[str]
) -> tuple[int, Record | None, Record]:
    """Return the index of the first row of data, the heading (None if there is none), and the units."""
    first = next(i for i, record in enumerate(records) if len(record) == width)
    rows = [record for record in records[first + 1 :] if len(record) == width]
    data_columns = _data_columns(rows, width)
    if data_columns:
        is_first_row = (len(record) == width and _has_data(record, data_columns) for record in records)
        start = next((i for i, is_first in enumerate(is_first_row) if is_first), first + 1)
    else:  # all cells are texts
        if first and len(records[first - 1]) == width - 1 > 1:
            first -= 1
        start = first + 1
    block = [record for record in records[:start] if len(record) > 1 or width == 1]
    names = next((r for r in records[: start + 1] if any(name in r for name in wanted)), None)
    names = names or next((record for record in block if _begins_a_name(wanted, record)), None)
    if names:
        others = [other for other in records[:start] if other is not names]
        return max(start, records.index(names) + 1), names, _units_of(others)
    if not data_columns:
        return start, records[first], []
    candidates = [record for record in block if not _is_comment(record)] or block
    complete = [record for record in candidates if all(record) and len(set(record)) == len(record)]
    # Of equally good lines, the lowest is the heading.
    heading = min(reversed(complete or candidates), key=_unit_count, default=None)
    return start, heading, _units_of([record for record in block if record is not heading])


def _begins_a_name(wanted: Sequence[str], record: Record) -> bool:
    """Return whether a wanted name is the beginning of a cell, in upper or lower case."""
    return any(name and cell.lower().startswith(name.lower()) for name in wanted for cell in record)


def _is_comment(record: Record) -> bool:
    return len(record[0]) > 1 and record[0].startswith("#")


def _units_of(records: Sequence[Record]) -> Record:
    """Return the first unit in each column of lines beside the heading, or ""."""
    return [next(filter(None, map(unit_in, cells)), "") for cells in zip_longest(*records, fillvalue="")]


def _data_columns(rows: Sequence[Record], width: int) -> list[int]:
    """Return the columns of which most cells are numbers or dates."""
    columns: list[int] = []
    for column in range(width):
        cells = [row[column] for row in rows if not is_blank_text(row[column])]
        if 2 * sum(map(_is_data, cells)) > len(cells):
            columns.append(column)
    return columns


def _has_data(record: Record, columns: Sequence[int]) -> bool:
    """Return whether a row has numbers or dates, or blanks, in most of these columns."""
    cells = [record[column] for column in columns]
    data = sum(map(_is_data, cells))
    return data > 0 and 2 * (data + sum(map(is_blank_text, cells))) > len(cells)


def _unit_count(record: Record) -> int:
    """Return the number of cells that are units."""
    return sum(map(bool, map(unit_in, record)))


def _fit(record: Sequence[str], width: int) -> list[str]:
    return [*record[:width], *[""] * (width - len(record))]


def _fit_names(
    path: Path,
    heading: Record,
    records: Sequence[Record],
    ends: Sequence[int],
    first_line: int,
    assumptions: list[str],
    error: type[HushmoteError],
) -> list[str]:
    """Return a name for each cell of a row, and add what was assumed if a row has more cells than names."""
    width = _modal_width(records) if records else len(heading)
    if width <= len(heading):
        return heading
    wide = [record for record in records if len(record) == width]
    if all(record[-1] == "" for record in wide) and width == len(heading) + 1:
        return [*heading, ""]
    line = first_line + ends[next(i for i, record in enumerate(records) if len(record) == width)]
    refusal = (
        f"{path}, line {line} has {width} cells, but the heading has {len(heading)}; "
        "repair the heading, or quote cells that contain the delimiter"
    )
    row_names = [record[0] for record in wide]
    if width > len(heading) + 1 or len(set(row_names)) < len(row_names) or _may_split_numbers(wide):
        raise error(refusal)
    assumptions.append(
        f"Rows of {path} have one more cell than its heading, so the first cell was taken as the row's name."
    )
    return ["", *heading]


def _may_split_numbers(rows: Sequence[Record]) -> bool:
    """Return whether two neighbouring columns could be numbers with decimal commas that were split."""
    whole = [all(row[i].lstrip("+-").isdecimal() for row in rows) for i in range(len(rows[0]))]
    return any(left and right for left, right in pairwise(whole))


def _decimal(columns: Sequence[Sequence[str]]) -> str:
    """Return the decimal separator in the columns whose numbers can only be read in one way, or ""."""
    points = commas = 0
    for cell in (cell for column in columns for cell in column):
        with_point, with_comma = parse_number(cell, "."), parse_number(cell, ",")
        points += with_comma is None is not with_point
        commas += with_point is None is not with_comma
    return "," if commas > points else "." if points else ""
