"""Files of readings as loggers, spreadsheets, Home Assistant and meters write them."""

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas
import pytest
from experiments import experiment_json
from refusals import fails

from hushmote.device.ldp_client import Experiment
from hushmote.planning.devices import PlanError
from hushmote.planning.proposal import propose
from hushmote.planning.request import PlanRequest
from hushmote.planning.written_numbers import ReadingRules
from hushmote.simulator.population import PopulationError, read_csv

TENTHS = [f"{20.1 + 0.3 * (i % 10):.1f}" for i in range(40)]
"""Ten different readings, 20.1 to 22.8, each four times."""

MISSING = {3: None, 13: None, 23: None, 33: None}


def lines(heading: str, row: str, cells: Sequence[str] = TENTHS, end: str = "\n") -> str:
    """Return a file whose rows contain a number from 0 ({i}) and a cell ({x})."""
    return heading + "".join(row.format(i=i, x=x, m=i % 60) + end for i, x in enumerate(cells))


def comma(cells: Sequence[str] = TENTHS) -> list[str]:
    return [x.replace(".", ",") for x in cells]


def with_blanks(*texts: str, cells: Sequence[str] = TENTHS) -> list[str]:
    """Return cells of which every tenth is one of these texts instead."""
    return [texts[i // 10 % len(texts)] if i % 10 == 3 else x for i, x in enumerate(cells)]


@dataclass(frozen=True)
class File:
    """A file and what is proposed from it.

    Attributes:
        plan: The values (bins or labels), the lowest and the highest reading, and the unit.
        readings: Number of readings, and of missing ones.
        notes: Parts of sentences on what was assumed.
    """

    content: str | bytes
    column: str
    plan: tuple[object, object, object, str]
    readings: tuple[int, int] = (40, 0)
    notes: tuple[str, ...] = ()
    rules: ReadingRules | None = None

    def write(self, folder: Path) -> Path:
        content = self.content if isinstance(self.content, bytes) else self.content.encode()
        (folder / "file.csv").write_bytes(content)
        return folder / "file.csv"


TEMPERATURES = (60, 20, 23, "")
CELSIUS = (60, 20, 23, "°C")
YES_NO = ("yes-no", None, None, "")
LOGGER = "Temp, °C (LGR S/N: 1, LBL: 5)"

FILES = {
    "sentinel": File(
        lines("t\n", "{x}\n", ["-200" if i % 10 == 0 else x for i, x in enumerate(TENTHS)], ""),
        "t",
        (60, 20, 23, ""),
        (36, 4),
        ("4 readings of -200 in t look like sensor errors",),
    ),
    "sentinel that is kept": File(
        lines("t\n", "{x}", ["-200" if i % 10 == 0 else x for i, x in enumerate(TENTHS)]),
        "t",
        (50, -200, 50, ""),
        rules=ReadingRules(keep=(-200,)),
    ),
    "power-on value": File(lines("t\n", "{x}", [*TENTHS, "85.0", "85.0"]), "t", TEMPERATURES, (40, 2)),
    "saturated counter": File(
        lines("n\n", "{x}", [*map(str, range(100, 140)), "65535", "65535"]), "n", (40, 100, 140, ""), (40, 2)
    ),
    "logger": File(
        '\ufeff"Plot Title: 1234"\n'
        + lines(f'"#","Date Time, GMT+00:00","{LOGGER}"\n', "{i},24/07/20 21:00:00,{x}"),
        LOGGER,
        CELSIUS,
        notes=("1 line of titles or units was left out",),
    ),
    "colons in the column": File(
        lines('time,"Temp, °C (S/N: 1, LBL: 5)"\n', "{i},{x}"), "Temp, °C (S/N: 1, LBL: 5)", CELSIUS
    ),
    "beginning of the column": File(lines('time,"Temp, °C (S/N: 1, LBL: 5)"\n', "{i},{x}"), "temp", CELSIUS),
    "number of the column": File(lines('time,"Temp, °C (S/N: 1, LBL: 5)"\n', "{i},{x}"), "#2", CELSIUS),
    "question marks": File(
        lines("Date;Time;power\n", "31/12/2006;17:{m:02d}:00;{x}", with_blanks("?")),
        "power",
        TEMPERATURES,
        (36, 4),
    ),
    "Home Assistant": File(
        lines(
            "entity_id,state,last_changed\n",
            "sensor.a,{x},2026-03-01T00:00:00.000Z",
            with_blanks("unavailable", "unknown"),
        ),
        "state",
        TEMPERATURES,
        (36, 4),
        ("4 of 40 cells are missing, so the file gets missing = true",),
    ),
    "Home Assistant, whole numbers": File(
        lines(
            "entity_id,state,last_changed\n",
            "sensor.a,{x},2026-03-01T00:00:00.000Z",
            ["40", "41", "45", "52"] * 10,
        ),
        "state",
        (13, 40, 53, ""),
    ),
    "Home Assistant, on and off": File(
        lines(
            "entity_id,state,last_changed\n",
            "binary_sensor.p,{x},2026-03-01",
            with_blanks("unavailable", cells=["on", "off"] * 20),
        ),
        "state",
        YES_NO,
        (36, 4),
    ),
    "words for missing": File(
        lines("kwh\n", "{x}", with_blanks("Null", "N/A", "None", "<NA>")), "kwh", TEMPERATURES, (36, 4)
    ),
    "dashes for missing": File(
        lines("t,u\n", "{x},1", with_blanks("-", "--", "", "n/a")), "t", TEMPERATURES, (36, 4)
    ),
    "errors of a spreadsheet": File(
        lines("t\n", "{x}", with_blanks("#DIV/0!", "#N/A")), "t", TEMPERATURES, (36, 4)
    ),
    "row names": File(
        lines('"date","Temperature","Humidity"\n', '"{i}","2015-02-02 14:00:00",20.1,{x}'),
        "Humidity",
        TEMPERATURES,
        notes=("have one more cell than its heading",),
    ),
    "delimiter at the end of rows": File(lines("a;t\n", "{i};{x};"), "t", TEMPERATURES),
    "quoted decimal commas": File(
        lines("time,temp_c\n", '{i},"{x}"', comma()), "temp_c", CELSIUS, notes=("20,1 was read as 20.1.",)
    ),
    "decimal commas in one column": File(lines("temp\n", "{x}", comma()), "temp", TEMPERATURES),
    "grouped by commas": File(
        lines("kwh\n", '"{x}"', [f"{1000 * float(x):,.1f}" for x in TENTHS]),
        "kwh",
        (60, 20000, 23000, ""),
        notes=("20,100.0 was read as 20100.",),
    ),
    "some grouped by commas": File(
        lines("w,u\n", '"{x}",1', ["1,204", "980", "1,021", "999"] * 10), "w", (60, 950, 1250, "")
    ),
    "some grouped by points": File(
        lines("w;u\n", "{x};a", ["1.204", "980", "1.021", "999"] * 10), "w", (60, 950, 1250, "")
    ),
    "grouped by spaces": File(
        lines("t;v\n", "{x};1", [f"2{i % 4}\u202f06{i % 10},5" for i in range(40)]),
        "t",
        (70, 20000, 23500, ""),
    ),
    "grouped by apostrophes": File(
        lines("t;v\n", "{x};1", [f"2{i % 4}'06{i % 10}.5" for i in range(40)]), "t", (70, 20000, 23500, "")
    ),
    "grouped by points": File(
        lines("t;v\n", "{x};1", [f"1.{230 + i},5" for i in range(40)]), "t", (80, 1230, 1270, "")
    ),
    "thousandths or thousands, stated": File(
        lines("t;v\n", "{x};1", [f"{x}00" for x in TENTHS]),
        "t",
        TEMPERATURES,
        rules=ReadingRules(decimal="."),
    ),
    "thousands by another column": File(
        lines("t;v\n", "{x};1,5", [f"{x}00" for x in TENTHS]), "t", (60, 20000, 23000, "")
    ),
    "units in the cells": File(
        lines("temp\n", "{x} °C"), "temp", CELSIUS, notes=("20.1 °C was read as 20.1 with the unit °C.",)
    ),
    "percent signs": File(lines("load,v\n", "{x}%,1"), "load", (60, 20, 23, "%")),
    "minus signs of typesetters": File(lines("t,v\n", "−{x},1"), "t", (60, -23, -20, "")),
    "Windows-1252": File(
        lines("zeit;temperatur °C\n", "{i};{x}", comma()).encode("cp1252"),
        "temperatur °C",
        CELSIUS,
        notes=("was read as Windows-1252",),
    ),
    "UTF-16": File(
        lines("zeit\ttemperatur °C\n", "{i}\t{x}", comma()).encode("utf-16"), "temperatur °C", CELSIUS
    ),
    "compressed": File(gzip.compress(lines("time,t\n", "{i},{x}").encode()), "t", TEMPERATURES),
    "separator line": File(lines("sep=;\nzeit;temp\n", "{i};{x}"), "temp", TEMPERATURES),
    "no heading": File(
        lines("", "{i},{x}"), "#2", TEMPERATURES, notes=("has no heading, so its columns are #1 to #2",)
    ),
    "titles, units and kinds": File(
        '"TOA5","CR1000","1","CPU:a.CR1"\n"TIMESTAMP","RECORD","AirTemp"\n"TS","RN","Deg C"\n'
        + lines('"","","Avg"\n', '"2026-01-01 00:00:00",{i},{x}'),
        "AirTemp",
        CELSIUS,
    ),
    "units below the heading": File(lines("time,temp,rh\ns,°C,%\n", "{i},{x},50"), "temp", CELSIUS),
    "line breaks in cells": File(lines('note,"air\ntemp"\n', '"a\nb",{x}'), "air temp", TEMPERATURES),
    "Windows line ends": File(lines("i,t\r\n", "{i},{x}", end="\r\n"), "t", TEMPERATURES),
    "a word among numbers": File(
        lines("t\n", "{x}", [*TENTHS, "reset"]),
        "t",
        TEMPERATURES,
        notes=("line 42: t is 'reset', not a number; the row was skipped",),
    ),
    "a longer row": File(
        lines("i,t\n", "{x}", [*(f"{i},{x}" for i, x in enumerate(TENTHS)), "1,2,3"]),
        "t",
        TEMPERATURES,
        notes=("line 42 has more cells than the heading, so it was skipped",),
    ),
    "a title with as many cells": File(
        "Garden, north, roof\n" + lines("date,temp,mode\n", "2026-01-01,{x},heat"), "tem", TEMPERATURES
    ),
    "a longer first row": File(
        lines("name,mode\na,b,c\n", "n{i},{x}", ["heat", "idle"] * 20),
        "mode",
        (("heat", "idle"), None, None, ""),
    ),
    "rows of delimiters at the end": File(lines("a;t;;\n", "{i};{x};;") + ";;;\n" * 9000, "t", TEMPERATURES),
    "lines of kinds": File(
        "#datatype,string,long,double\n#default,,,\n" + lines(",result,table,_value\n", ",a,0,{x}"),
        "_val",
        TEMPERATURES,
    ),
    "names with numbers": File(lines("time,2.4GHz\n", "2026-01-01 00:{m:02d},{x}"), "2.4", TEMPERATURES),
    "versions": File(
        lines("fw\n", "{x}", ["1.9", "1.10", "1.10", "1.11"] * 10),
        "fw",
        (("1.10", "1.9", "1.11"), None, None, ""),
    ),
    "two spellings": File(
        lines("x\n", "{x}", ["1.1", "1.10", "1.10"] * 10), "x", (("1.10", "1.1"), None, None, ""), (30, 0)
    ),
    "codes": File(
        lines("code\n", "{x}", ["200", "404", "500", "200"] * 10),
        "code",
        (("200", "404", "500"), None, None, ""),
    ),
    "states": File(
        lines("http_status,n\n", "{x},1", ["200", "404"] * 20),
        "http_status",
        (("200", "404"), None, None, ""),
    ),
    "postcodes": File(
        lines("place,n\n", "{x},1", ["01067", "80331"] * 20), "place", (("01067", "80331"), None, None, "")
    ),
    "a freezer's sensor": File(
        lines("t,u\n", "-{x},1", [*TENTHS, *["127.00"] * 3]) + "85.00,1\n" * 2,
        "t",
        (60, -23, -20, ""),
        (40, 5),
        ("3 readings of -127 in t", "2 readings of 85 in t"),
    ),
    "nines with decimals": File(
        lines("rain,n\n", "{x},1", [*TENTHS, "99.99", "99.99"]), "rain", TEMPERATURES, (40, 2)
    ),
    "a sum of money": File(
        lines("t;v\n", "{x} €;1", [f"1.{230 + i},50" for i in range(40)]), "t", (80, 1230, 1270, "€")
    ),
    "a minimum": File(lines("time,temp_min\n", "{i},{x}"), "temp_min", TEMPERATURES),
    "a line of kinds below units": File(
        '"TOA5","CR1000","1","CPU:a.CR1"\n"TIMESTAMP","RECORD","BattV_Min"\n"TS","RN","Volts"\n'
        + lines('"","","Min"\n', '"2026-01-01 00:00:00",{i},{x}'),
        "BattV_Min",
        (60, 20, 23, "V"),
    ),
    "more names than units": File(
        "time,temp,wind,mode,n\n" + lines("TS,Deg C,Volts,degrees,RN\n", "2026-01-01,{x},1,2,{i}"),
        "#2",
        CELSIUS,
        notes=("temp of",),
    ),
    "a unit in brackets": File(lines("time,Temperature (C)\n", "{i},{x}"), "temp", CELSIUS),
    "names above units, by their beginning": File(
        ";Total yield;Power\n;Counter;Analog\n" + lines("dd/MM/yyyy;kWh;kW\n", "01/01/2026;{x};0.5"),
        "total",
        (60, 20, 23, "kWh"),
    ),
    "page breaks in cells": File(
        lines("a\x0c,t\n", "{i}\x0b\u2028,{x}") + "1,reset\n",
        "t",
        TEMPERATURES,
        notes=("line 42: t is 'reset'",),
    ),
    "a very long cell": File(
        lines("a,t\n", "{i},{x}") + f"{'x' * 200_000},20.1\n1,{'y' * 100}\n",
        "t",
        TEMPERATURES,
        (41, 0),
        (f"line 43: t is '{'y' * 59}…', not a number",),
    ),
    "yes and no as decimals": File(
        lines("open,n\n", "{x},1", with_blanks("", cells=["1.0", "0.0"] * 20)), "open", YES_NO, (36, 4)
    ),
    "missing in a database": File(lines("t,n\n", "{x},1", with_blanks("\\N")), "t", TEMPERATURES, (36, 4)),
    "names of several words": File(
        lines("statusCode,n\n", "{x},1", ["200", "404"] * 20),
        "statusCode",
        (("200", "404"), None, None, ""),
    ),
    "letters behind numbers": File(
        lines("model,n\n", "{x},1", ["3B", "3B", "3A", "4B"] * 10),
        "model",
        (("3B", "3A", "4B"), None, None, ""),
    ),
    "large numbers": File(
        lines("kwh,n\n", "{x},1", [str(123_456_000 + i) for i in range(40)]),
        "kwh",
        (40, 123_456_000, 123_456_040, ""),
        notes=("from 123456000 to 123456039",),
    ),
    "rare labels": File(
        lines("mode,n\n", "{x},1", [*["heat", "idle"] * 19, "Anna", "Ben"]),
        "mode",
        (("heat", "idle"), None, None, ""),
        notes=("2 less common texts become other",),
    ),
}


class TestForms:
    @pytest.mark.parametrize("name", FILES)
    def test_gives_its_readings(self, name: str, tmp_path: Path):
        file = FILES[name]
        path = file.write(tmp_path)
        proposal = propose(f"{path}:{file.column}", PlanRequest(), file.rules)
        request = proposal.request
        assert (request.values, request.low, request.high, request.unit) == file.plan
        missing = sum(reading is None for reading in proposal.readings)
        assert (len(proposal.readings) - missing, missing) == file.readings
        for note in file.notes:
            assert note in " ".join(proposal.lines)

    @pytest.mark.parametrize("name", [name for name, file in FILES.items() if isinstance(file.plan[0], int)])
    def test_is_simulated_with_the_same_readings(self, name: str, tmp_path: Path):
        file = FILES[name]
        bins, low, high, _ = file.plan
        path = file.write(tmp_path)
        people = read_csv(path, file.column, "number", rules=file.rules)
        assert people.readings == propose(f"{path}:{file.column}", PlanRequest(), file.rules).readings
        limits = {"low": 1000 * int(str(low)), "high": 1000 * int(str(high)), "bins": bins}
        e = Experiment.parse(experiment_json(type="number", mechanism="grr", **limits))
        counts = people.counts(e)
        assert (counts[:-1].sum(), counts[-1]) == file.readings


REFUSED = {
    "thousandths or thousands": (
        lines("t;v\n", "{x};1", [f"{x}00" for x in TENTHS]),
        "t",
        "20.100 in t is 20.1 or 20100; give --decimal . or --decimal ,",
    ),
    "thousands or decimals": (
        lines("t,v\n", '"{x}",1', ["1,204", "2,310"] * 20),
        "t",
        "1,204 in t is 1204 or 1.204",
    ),
    "split decimals": (
        lines("time,temp\n", "{i},{x}", comma()),
        "temp",
        "line 2 has 3 cells, but the heading has 2",
    ),
    "too many words": (
        lines("t,v\n", "{x},1", with_blanks("reset")),
        "t",
        "line 5: t is 'reset', not a number, like 3 other cells",
    ),
    "too many longer rows": (
        lines("i,t\n", "{i},{x}", ["1,2" if i % 10 == 3 else x for i, x in enumerate(TENTHS)]),
        "t",
        "line 5 has more cells than the heading, as 4 of 40 rows do",
    ),
    "mixed units": (
        lines("v,n\n", "{x},1", ["1.2 V", "1.3 V", "900 mV"] * 10),
        "v",
        "line 4: v is '900 mV', not in V, like 9 other cells",
    ),
    "dates": (
        lines("day,n\n", "2026-01-0{x},1", ["1", "2"] * 20),
        "day",
        "has dates or times; use a column of hours (0 to 23) or weekdays",
    ),
    "timestamps": (lines("t,n\n", "1.1.2026 10:{m:02d},1"), "t", "has dates or times"),
    "times of day": (lines("t,n\n", "10:{m:02d}:00,1"), "t", "has dates or times"),
    "Unix times": (lines("timestamp,n\n", "17700000{m:02d},1"), "timestamp", "has dates or times"),
    "names": (
        lines("owner,n\n", "person-{i},1"),
        "owner",
        "each of the 40 texts in owner occurs only once; give --values",
    ),
    "too many texts": (
        lines("owner,n\n", "p{x},1", [str(i // 2) for i in range(80)]),
        "owner",
        "owner has 40 different texts, too many for labels",
    ),
    "two columns of a name": (lines("t,t\n", "{i},{x}"), "t", "'t' matches 2 columns; use #1 or #2"),
    "two columns that begin so": (
        lines("temp_in,temp_out\n", "{i},{x}"),
        "temp",
        "'temp' matches 2 columns; use #1 or #2",
    ),
    "no such column": (lines("a,b\n", "{i},{x}"), "c", "has no column 'c'; it has a, b"),
    "a workbook": (b"PK\x03\x04rest", "t", "is an Excel workbook or a ZIP archive; save the sheet as CSV"),
    "a damaged archive": (
        gzip.compress(lines("a,t\n", "{i},{x}").encode())[:-20],
        "t",
        "is a damaged gzip file",
    ),
    "decimals without a zero at the end": (
        lines("t;v\n", "{x};1", ["21.375", "22", "23.125"] * 10),
        "t",
        "21.375 in t is 21.375 or 21375",
    ),
    "days without separators": (lines("day,n\n", "202601{x},1", ["01", "31"] * 20), "day", "dates or times"),
    "hours without separators": (
        lines("day,n\n", "20260101{x},1", ["01", "23"] * 20),
        "day",
        "dates or times",
    ),
    "names of months": (lines("day;n\n", "Jan {x}, 2026;1", ["1", "31"] * 20), "day", "has dates or times"),
    "names of weekdays": (
        lines("gps,n\n", "Thu Jan 01 {x}:00:00 GMT+01:00 2026,1", ["10", "23"] * 20),
        "gps",
        "has dates or times",
    ),
    "weeks": (lines("week,n\n", "2026-W{x},1", ["01", "31"] * 20), "week", "has dates or times"),
    "days without a year": (lines("tag,n\n", "{x}.01.,1", ["01", "31"] * 20), "tag", "has dates or times"),
    "Unix times in milliseconds": (
        lines("created_at_ms,n\n", "17700000{m:02d}000,1"),
        "created_at_ms",
        "has dates or times",
    ),
    "numbers beyond a board's": (
        lines("n,v\n", "9{i:012d},1"),
        "n",
        "n has numbers up to 9e\\+12, but boards take at most 1,099,511,627; use a larger unit",
    ),
    "another delimiter in some rows": (
        lines("i,u,t\n", "{i},1,{x}") + lines("", "{i};1;{x}"),
        "t",
        "line 42 has no ',' between its cells, like 39 other rows; use the same delimiter",
    ),
    "JSON": (lines("", '{{"t":{i},"v":{x}}}'), "v", "is JSON; convert it to CSV"),
    "HTML": (lines("<html><table>\n", "<tr><td>{x}</td></tr>"), "v", "is HTML or XML; save its table as CSV"),
    "other bytes": (b"\x28\xb5\x2f\xfd\x04\x58 and so on", "v", "is not text: byte 4 is 0x04"),
    "blanks": ("  \n \n", "v", "is empty"),
    "many columns": (lines(",".join(f"c{i}" for i in range(999)) + "\n", "{x}"), "v", ",c121…"),
    "half a character": (lines("a,t\n", "{i},{x}").encode("utf-16")[:-1], "t", "is not valid utf-16"),
    "an open quote": (
        lines("a,t\n", '"{i}\n",{x}') + '\n40,"21',
        "t",
        "line 83: a cell's quote is not closed",
    ),
}


class TestRefusals:
    @pytest.mark.parametrize("name", REFUSED)
    def test_is_one_line(self, name: str, tmp_path: Path):
        content, column, reason = REFUSED[name]
        path = File(content, column, TEMPERATURES).write(tmp_path)
        with fails(reason.replace("(", r"\(").replace(")", r"\)"), PlanError):
            propose(f"{path}:{column}", PlanRequest())

    def test_table_in_memory_has_one_column(self):
        with fails("must have one dimension, such as a data frame's column", PlanError):
            propose(pandas.DataFrame({"t": TENTHS}), PlanRequest())

    def test_stated_values_override_the_kind(self, tmp_path: Path):
        path = File(lines("code,n\n", "{x},1", ["200", "404"] * 20), "code", TEMPERATURES).write(tmp_path)
        assert propose(f"{path}:code", PlanRequest(values=64)).request.low == 200

    def test_labels_may_be_words_for_missing(self, tmp_path: Path):
        path = File(lines("mode,n\n", "{x},1", ["heat", "none", "unknown"] * 10), "mode", TEMPERATURES).write(
            tmp_path
        )
        people = read_csv(path, "mode", "choice", ("heat", "none"))
        assert people.readings[:3] == ("heat", "none", None)

    def test_share_of_a_text_is_never_skipped(self, tmp_path: Path):
        content = lines("text,share\n", "v{i},{x}") + "v40,many\n"
        path = File(content, "share", TEMPERATURES).write(tmp_path)
        with fails("line 42: share is 'many', not a number", PopulationError):
            from hushmote.simulator.texts import parse

            parse(f"file:{path}")
