"""vectors.json: the client passes it, the reference implementation computes it, and its check can fail."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import make_vectors
import pytest
import reference_board

from hushmote.device import consent, ldp_client
from hushmote.device.ldp_client import ExperimentRefused

TEXT = make_vectors.PATH.read_text(encoding="utf-8")
FURTHER = make_vectors.FURTHER_PATH.read_text(encoding="utf-8")
GROUPS = make_vectors.GROUPS_PATH.read_text(encoding="utf-8")
ALPHABETS = make_vectors.TEXT_PATH.read_text(encoding="utf-8")
SCALE = make_vectors.SCALE_PATH.read_text(encoding="utf-8")
CHECKER = Path(__file__).parents[2] / "firmware_tests" / "check_vectors.py"


@pytest.fixture(scope="module")
def checker():
    """Load the board's checking code with the module under test instead of the board's."""
    before = sys.modules.get("ldp_client")
    sys.modules["ldp_client"] = ldp_client
    spec = importlib.util.spec_from_file_location("check_vectors", CHECKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    if before is None:
        del sys.modules["ldp_client"]
    else:
        sys.modules["ldp_client"] = before


def as_lines(sections):
    lines = []
    for name, cases in sections.items():
        lines += [f'"{name}":[', *(json.dumps(case, ensure_ascii=False) + "," for case in cases), "],"]
    return lines


class TestQuestions:
    TEXT = make_vectors.QUESTIONS_PATH.read_text("utf-8")

    def test_match_the_reference(self):
        assert make_vectors.build_questions() == self.TEXT, "run python tools/make_vectors.py"

    @pytest.mark.parametrize(
        "case", json.loads(TEXT)["questions"], ids=lambda case: case["question"] or case["payload"]
    )
    def test_match_the_client(self, case: dict[str, str | None]):
        def question() -> str:
            return consent._question(str(case["payload"]).encode()).hex()

        if case["question"] is None:
            with pytest.raises(ExperimentRefused):
                question()
        else:
            assert question() == case["question"]


class TestFile:
    def test_reading_line_by_line_finds_every_case(self, checker):
        whole = [(name, case) for name, cases in json.loads(TEXT).items() for case in cases]
        assert list(checker.cases(TEXT.splitlines(keepends=True))) == whole
        sections = set(json.loads(TEXT)) | set(json.loads(FURTHER)) | set(json.loads(GROUPS))
        sections |= set(json.loads(SCALE))
        assert sections == set(checker.CHECKS)

    def test_matches_the_reference(self):
        assert make_vectors.build() == TEXT, "run python tools/make_vectors.py"
        assert make_vectors.build(further=True) == FURTHER, "run python tools/make_vectors.py"
        assert make_vectors.build_groups() == GROUPS, "run python tools/make_vectors.py"
        assert make_vectors.build_text() == ALPHABETS, "run python tools/make_vectors.py"
        assert make_vectors.build_scale() == SCALE, "run python tools/make_vectors.py"

    def test_reference_is_independent_of_the_client(self):
        for module in (reference_board, make_vectors):
            source = Path(str(module.__file__)).read_text()
            assert "import ldp_client" not in source
            assert "hushmote.device" not in source

    def test_suits_small_boards(self):
        assert len(TEXT) <= 108 * 1024
        # Read line by line, and stored with 100 KiB of firmware on a board.
        assert len(FURTHER) + len(GROUPS) <= 64 * 1024
        assert len(SCALE) <= 8 * 1024
        assert len(ALPHABETS.encode()) <= 9 * 1024
        whole = TEXT + FURTHER + GROUPS + SCALE + ALPHABETS
        assert max(len(line.encode()) for line in whole.splitlines()) <= 4096


def altered(value: Any) -> Any:
    """Return the value with one change."""
    if isinstance(value, bool) or value is None:
        return "altered"
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str) and len(value) > 60:
        return value[:4] + altered(value[4:5]) + value[5:]
    if isinstance(value, str):
        return value[:-1] + ("0" if value[-1:] != "0" else "1")
    return [*value[:-1], altered(value[-1])] if value else ["00"]


EXPECTATIONS = {
    "thresholds": ["threshold"],
    "experiments": ["sha256", "domain", "code_count", "code_bytes", "levels", "every", "cap", "weight_sum"],
    "codes": ["code", "draws"],
    "buckets": ["index"],
    "drbg": ["steps"],
    "reports": ["report", "after"],
    "policies": ["refused"],
    "signatures": ["refused"],
    "withdrawals": ["refused", "least"],
    "ledgers": ["locked", "consent", "sum", "squares", "reports", "outbox"],
    "malformed": ["text"],
    "scales": ["edges"],
    "settings": ["text"],
}


class TestClient:
    @pytest.mark.parametrize("section", json.loads(TEXT))
    def test_passes_every_vector(self, checker, section):
        cases = json.loads(TEXT)[section]
        needed = {"experiments": json.loads(TEXT)["experiments"], section: cases}
        counts, failures = checker.run(as_lines(needed))
        assert failures == []
        assert counts[section] == len(cases) >= 4

    @pytest.mark.parametrize("section", json.loads(FURTHER))
    def test_passes_every_further_vector(self, checker, section):
        needed = {name: json.loads(FURTHER)[name] for name in ("experiments", section)}
        counts, failures = checker.run(as_lines(needed))
        assert failures == []
        assert counts[section] == len(needed[section]) >= 4

    @pytest.mark.parametrize("section", json.loads(GROUPS))
    def test_passes_every_vector_with_a_group(self, checker, section):
        cases = json.loads(GROUPS)[section]
        counts, failures = checker.run(as_lines({section: cases}))
        assert failures == []
        assert counts[section] == len(cases) >= 4

    @pytest.mark.parametrize("section", json.loads(ALPHABETS))
    def test_passes_every_vector_in_another_alphabet(self, checker, section):
        needed = {name: json.loads(ALPHABETS)[name] for name in ("experiments", section)}
        counts, failures = checker.run(as_lines(needed))
        assert failures == []
        assert counts[section] == len(needed[section]) >= 1

    @pytest.mark.parametrize("section", json.loads(SCALE))
    def test_passes_every_vector_with_a_scale(self, checker, section):
        cases = json.loads(SCALE)[section]
        counts, failures = checker.run(as_lines({section: cases}))
        assert failures == []
        assert counts[section] == len(cases) >= 4

    @pytest.mark.parametrize("section", ["experiments", "reports"])
    def test_fails_the_check_on_wrong_group(self, checker, section):
        case = next(case for case in json.loads(GROUPS)[section] if case.get("report", True))
        for field in {"group", "groups", "every_of", "report"} & set(case):
            wrong: dict[str, object] = {**case, field: altered(case[field])}
            _, failures = checker.run(as_lines({section: [wrong]}))
            assert len(failures) == 1, field

    @pytest.mark.parametrize("section", EXPECTATIONS)
    def test_fails_the_check_on_wrong_expectation(self, checker, section):
        sections = json.loads(SCALE) | json.loads(GROUPS) | json.loads(FURTHER) | json.loads(TEXT)
        for field in EXPECTATIONS[section]:
            case = dict(sections[section][1 if section in ("signatures", "withdrawals", "ledgers") else -1])
            case[field] = altered(case[field])
            needed = {"experiments": sections["experiments"]} if section != "experiments" else {}
            _, failures = checker.run(as_lines({**needed, section: [case]}))
            assert len(failures) == 1, field
