"""The rule of a witness: what it signs, refuses until a person decides, and refuses for a day."""

import itertools

import pytest
from public_log import DAY_S, HOUR_S, LOG, NOW, ORIGIN, RULE_FILE, question, rule, version, withdrawal
from refusals import fails

from hushmote.fleet.witness.rule import Rule, RuleError, judge
from hushmote.server.log.entry import experiment_entry, policy_entry
from hushmote.server.log.note import ECDSA, ED25519, SecretKey


def grouped(*values):
    return version(group="fw", groups=list(values))


RULE = rule()


def after(*batches, rule=RULE):
    """Return the records after signatures of these batches, an hour apart, the last at NOW."""
    records = {}
    for at, batch in enumerate(batches, 1 - len(batches)):
        records = judge(rule, records, batch, NOW + at * HOUR_S, is_accepted=True).records
    return records


def problems(records, *entries, now=NOW, rule=RULE, is_accepted=False):
    return judge(rule, records, entries, now, is_accepted).problems


def is_lasting(found):
    return [problem.wait_s is None for problem in found] == [True]


class TestOneVersionAtATime:
    def test_signs_the_first_version(self):
        assert problems({}, version()) == ()

    def test_refuses_a_hundred_variants_of_one_day(self):
        variants = [version(epsilon=home) for home in range(100)]
        (problem,) = problems({}, *variants)
        assert problem.wait_s is None
        assert "home/temp has 100 versions since the last signature" in problem.text

    def test_refuses_two_versions_after_any_time(self):
        assert is_lasting(problems(after([version()]), version(a=1), version(a=2), now=NOW + 99 * DAY_S))

    @pytest.mark.parametrize("between", [[], [withdrawal()], [withdrawal(), withdrawal()]])
    def test_withdrawals_do_not_hide_a_change(self, between):
        dance = [version(a=1), *between, version(a=2), *between, version(a=1)]
        assert is_lasting(problems(after([version(a=1)]), *dance, now=NOW + DAY_S))
        assert is_lasting(problems({}, *dance))

    def test_withdrawal_between_equal_versions_is_no_change(self):
        records = after([version()])
        assert problems(records, *[withdrawal(), version()] * 9) == ()
        assert judge(rule(), records, [withdrawal(), version()] * 9, NOW).records == records

    def test_withdrawals_are_never_limited(self):
        assert (
            problems(after([version(), version("door")]), withdrawal(), withdrawal("door"), withdrawal("x"))
            == ()
        )

    @pytest.mark.parametrize("variant", [b" ", b"\n"])
    def test_white_space_is_a_change(self, variant):
        entry = bytes(experiment_entry("home", "temp", question() + variant))
        (problem,) = problems(after([version()]), entry)
        assert problem.wait_s == DAY_S

    def test_order_of_fields_is_a_change(self):
        entry = bytes(experiment_entry("home", "temp", b'{"name":"temp","v":1,"type":"bool"}'))
        assert problems(after([version()]), entry)[0].wait_s == DAY_S

    def test_serial_and_signature_are_no_change(self):
        signed = [
            bytes(experiment_entry("home", "temp", question() + b"\0" + bytes([i]) * 68)) for i in range(3)
        ]
        assert problems({}, *signed) == ()

    def test_names_and_fleets_are_apart(self):
        both = rule(("home", "office"))
        entries = [version(), version("door"), version(fleet="office")]
        assert problems({}, *entries, rule=both) == ()

    def test_refuses_swapped_names(self):
        swapped = bytes(experiment_entry("home", "temp", question("door")))
        assert is_lasting(problems({}, swapped))


class TestOncePerDay:
    @pytest.mark.parametrize(("later_s", "wait_s"), [(1, DAY_S - 1), (DAY_S - 1, 1), (DAY_S, 0)])
    def test_waits_for_a_day(self, later_s, wait_s):
        found = problems(after([version()]), version(a=1), now=NOW + later_s)
        assert [problem.wait_s for problem in found] == [wait_s] * bool(wait_s)

    def test_clock_set_back_allows_nothing(self):
        for back_s in (1, DAY_S, 999 * DAY_S):
            (problem,) = problems(after([version()]), version(a=1), now=NOW - back_s)
            assert problem.wait_s == DAY_S + back_s

    def test_more_changes_if_the_rule_says_so(self):
        twice = rule(changes_a_day=2)
        records = after([version()], rule=twice)
        assert problems(records, version(a=1), rule=twice) == ()
        records = after([version()], [version(a=1)], rule=twice)
        (problem,) = problems(records, version(a=2), rule=twice)
        assert problem.wait_s == DAY_S - HOUR_S
        assert is_lasting(problems({}, version(a=1), version(a=2), rule=twice))

    def test_never_more_than_one_version_in_any_day(self):
        # Every schedule of signatures at multiples of 8 hours, over 3 days.
        for hours in itertools.product((0, 8, 16, 24, 32), repeat=3):
            now, records, signed = NOW, {}, []
            for number, step in enumerate(hours):
                now += step * HOUR_S
                verdict = judge(rule(), records, [version(a=number)], now)
                if not verdict.problems:
                    records = verdict.records
                    signed.append(now)
            assert all(b - a >= DAY_S for a, b in itertools.pairwise(signed))


class TestGroups:
    def test_appends_twice_a_day_but_not_thrice(self):
        records = after([grouped("1.0")])
        for hour, values in ((2, ["1.0", "1.1"]), (3, ["1.0", "1.1", "1.2"])):
            verdict = judge(rule(), records, [grouped(*values)], NOW + hour * HOUR_S)
            assert verdict.problems == ()
            records = verdict.records
        entry = grouped("1.0", "1.1", "1.2", "1.3")
        (problem,) = problems(records, entry, now=NOW + 4 * HOUR_S)
        assert problem.wait_s == DAY_S - 2 * HOUR_S
        assert problems(records, entry, now=NOW + DAY_S + 2 * HOUR_S) == ()

    def test_three_at_once_need_a_person(self):
        entries = [grouped(*"abcd"[:count]) for count in (1, 2, 3, 4)]
        assert is_lasting(problems(after([entries[0]]), *entries[1:], now=NOW + DAY_S))
        assert problems(after([entries[0]]), *entries[1:3]) == ()

    def test_removed_value_is_a_change(self):
        records = after([grouped("1.0")])
        longer = grouped("1.0", "1.1")
        assert is_lasting(problems(records, longer, grouped("1.0"), version(), now=NOW + DAY_S))
        assert problems(records, longer, grouped("1.0"))[0].wait_s == DAY_S


def signed(serial, **fields):
    """Return the entry of a version as a keyed fleet announces it."""
    content = question(**fields) if fields else b""
    return bytes(experiment_entry("home", "temp", content + b"\0" + serial.to_bytes(4, "big") + bytes(64)))


class TestSerials:
    @pytest.mark.parametrize("serial", [4, 5])
    def test_change_needs_a_higher_serial(self, serial):
        (problem,) = problems(after([signed(5, a=1)]), signed(serial, a=2), now=NOW + DAY_S)
        assert problem.wait_s is None
        assert f"home/temp changes with serial {serial}, but serial 5 came before" in problem.text
        assert problems(after([signed(5, a=1)]), signed(6, a=2), now=NOW + DAY_S) == ()

    @pytest.mark.parametrize("between", [[signed(8)], [signed(6), signed(8)], [signed(8, a=1)]])
    def test_withdrawals_and_renewals_count(self, between):
        records = after([signed(5, a=1), *between])
        assert is_lasting(problems(records, signed(8, a=2), now=NOW + DAY_S))
        assert problems(records, signed(9, a=2), now=NOW + DAY_S) == ()

    def test_lower_serial_never_lowers_the_highest(self):
        records = after([signed(5, a=1)], [signed(3, a=1)])
        assert is_lasting(problems(records, signed(4, a=2), now=NOW + DAY_S))

    def test_person_can_accept_a_lower_serial(self):
        assert problems(after([signed(5, a=1)]), signed(5, a=2), is_accepted=True) == ()


class TestEvery:
    @pytest.mark.parametrize("every", [[1, 2**24], [], "1", 1.5, True, None])
    def test_must_be_one_number(self, every):
        entry = version(group="fw", groups=["yours"], every=every)
        (problem,) = problems({}, entry)
        assert problem.text.startswith("home/temp has an every for each group")
        assert problem.wait_s is None
        assert problems({}, entry, is_accepted=True) == ()

    def test_one_number_is_signed(self):
        assert problems({}, version(group="fw", groups=["1.0"], every=90)) == ()


class TestScope:
    def test_refuses_unlisted_fleets_even_if_accepted(self):
        for entry in (version(fleet="other"), bytes(policy_entry("other", {}))):
            for is_accepted in (False, True):
                assert is_lasting(problems({}, entry, is_accepted=is_accepted))

    def test_releases_and_policies_are_free(self):
        entries = [bytes(policy_entry("home", {"n": i})) for i in range(9)] + [b"hushmote/release/1.0\0x"]
        assert problems({}, *entries) == ()

    def test_limits_the_number_of_fleets(self):
        some = rule(None, most_fleets=2)
        entries = [version(fleet=f"home{i}") for i in range(3)]
        assert problems({}, *entries[:2], rule=some) == ()
        assert "3 fleets: the rule allows most_fleets = 2" in problems({}, *entries, rule=some)[0].text

    def test_limits_the_number_of_questions(self):
        entries = [version(f"q{i}") for i in range(3)]
        assert "most_names = 2" in problems({}, *entries, rule=rule(most_names=2))[0].text

    @pytest.mark.parametrize(
        "entry",
        [
            b"",
            b"nonsense\0{}",
            b"tenant/" + version(),
            version(labels=["x" * 1000]),
            bytes(experiment_entry("home", "temp", b"\xff")),
        ],
    )
    def test_unreadable_entries_need_a_person_and_are_ignored(self, entry):
        records = after([version()])
        assert is_lasting(problems(records, entry))
        verdict = judge(rule(), records, [entry], NOW, is_accepted=True)
        assert (verdict.problems, verdict.records) == ((), records)

    @pytest.mark.parametrize(
        "content",
        [
            b"{",
            b'{"name":"temp","name":"temp","n":%d}',
            b'{"name":"temp" "n":%d}',  # MicroPython reads it as if it had the comma
            b'{"name":"other","n":%d}',
        ],
    )
    def test_versions_that_some_boards_may_read_are_counted(self, content):
        records = after([version()])
        entries = [
            bytes(experiment_entry("home", "temp", content.replace(b"%d", b"%d" % n))) for n in (1, 2, 3)
        ]
        assert is_lasting(problems(records, entries[0], now=NOW + DAY_S))
        verdict = judge(rule(), records, entries, NOW, is_accepted=True)
        count = len(set(entries))
        assert (verdict.problems, verdict.changed) == ((), {"home/temp": count})
        record = verdict.records["home", "temp"]
        assert (record.versions, record.question) == (1 + count, entries[-1].partition(b"\0")[2])
        assert problems(verdict.records, version())[0].wait_s == DAY_S


class TestFile:
    def test_reads_a_rule(self):
        assert Rule.parse(RULE_FILE) == rule()
        everything = RULE_FILE.replace(
            '["home"]', '"all"\nmost_fleets = 3\nchanges_a_day = 2\nmost_names = 9'
        )
        assert Rule.parse(everything) == Rule(LOG.public(ED25519), None, 3, 9, 2)

    @pytest.mark.parametrize(
        ("old", "new", "match"),
        [
            ('["home"]', '"some"', 'fleets must be a list of fleets\' names, or "all"'),
            ('["home"]', '["Home"]', "fleets must be"),
            ('["home"]', '"all"', "most_fleets must be given"),
            ('["home"]', '["home"]\nmost_fleets = 2', "most_fleets must be given"),
            ('["home"]', '["home"]\nchanges_a_day = 5', "changes_a_day must be 4 or less, not 5"),
            ('["home"]', '["home"]\nchanges_a_day = 0', "changes_a_day must be 1 or more"),
            ('["home"]', '["home"]\nchanges_a_day = "1"', "changes_a_day must be a whole number"),
            ('["home"]', '["home"]\nfleet = 2', "fleet is not a field; the fields are origin, log"),
            ('fleets = ["home"]', "", "fleets is missing|fleets must be"),
            (ORIGIN, "example.org/else", "NAME\\+ID\\+BASE64|must be the key of"),
            (str(LOG.public(ED25519)), "abc", "log: a log's or witness's public key has the form"),
            (
                str(LOG.public(ED25519)),
                str(LOG.public(ECDSA)),
                "log must be the key of .*, not one of another type",
            ),
            ("origin =", "origin", "not TOML"),
        ],
    )
    def test_rejects_mistakes(self, old, new, match):
        with fails(match, RuleError):
            Rule.parse(RULE_FILE.replace(old, new))

    def test_other_origin_than_the_key(self):
        other = SecretKey("other", b"\1" * 32, b"\2" * 32).public(ED25519)
        with fails("must be the key of 'example.org/questions' .*, not a key of 'other'", RuleError):
            Rule.parse(RULE_FILE.replace(str(LOG.public(ED25519)), str(other)))

    def test_describes_itself(self):
        assert str(rule()) == (
            "one version of a question at a time, at most one change of it in 24 hours, for the fleet home"
        )
        assert "at most 2 changes of it in 24 hours, for 1 fleet at most" in str(
            rule(None, most_fleets=1, changes_a_day=2)
        )
