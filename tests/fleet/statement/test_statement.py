"""A fleet's statement: its text, the sources of its numbers, and its signature."""

import dataclasses
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from experiments import experiment_json
from refusals import fails
from sqlalchemy import update
from statements import AT, KEPT, POLICY, ask, facts_of, firmware

from hushmote.device.ldp_client import Experiment
from hushmote.fleet.provisioning import flash, master_key
from hushmote.fleet.provisioning.fleet_folder import FleetFolder
from hushmote.fleet.provisioning.fleet_spec import FleetSpec
from hushmote.fleet.statement import document, fleet_facts, page
from hushmote.fleet.statement.fleet_facts import StatementError
from hushmote.server.answers.query import Facts, Selection
from hushmote.server.answers.second_epsilon import overview
from hushmote.server.budgets import policy
from hushmote.server.store import schema
from hushmote.server.store.store import Store
from hushmote.server.wire import topics
from hushmote.server.words import label as words
from hushmote.server.words.label import Value

REPORTS_BY_DAY = {"2026-11-20": 700, "2026-11-21": 300}
KEYS = master_key.FleetKeys((bytes(range(32)),), bytes(31) + b"\x05")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'statement.sqlite'}") as opened:
        yield opened


def statement(store: Store, tmp_path: Path) -> dict[str, Any]:
    return document.document(facts_of(store, tmp_path))


def numbers(contents: dict[str, Any]) -> dict[str, tuple[str, str]]:
    (table,) = contents["chapters"][-1]["tables"]
    return {what: (value, source) for what, value, source in table["rows"]}


def tables_of(contents: dict[str, Any]) -> list[dict[str, Any]]:
    return [table for chapter in contents["chapters"] for table in chapter["tables"]]


def english(phrase: Value) -> str:
    return words.words_in("en").write(phrase)


def label_of(contents: dict[str, Any]) -> dict[str, str]:
    """Return the text of each of the label's answers, by question name."""
    headings = words.words_in(contents["language"]).texts
    return {question: " ".join(contents["label"][headings[question]]) for question in words.QUESTIONS}


class TestPlannedFirst:
    """The label starts with the experiment's budget, and names the device's limit below it."""

    def learn(self, store: Store, tmp_path: Path, text: str) -> list[str]:
        ask(store, text)
        return list(statement(store, tmp_path)["label"]["What can they learn about my home?"])[1:]

    def test_plan_comes_before_the_limit(self, store: Store, tmp_path: Path):
        lines = self.learn(
            store, tmp_path, KEPT.replace("epsilon = 2", "epsilon = 1").replace("cap = 8", "cap = 3")
        )
        # e^3 / (9 + e^3) is 0.6905, e / (9 + e) 0.2320.
        assert lines[0] == (
            "room_temp: at most 3 reports are planned in the device's lifetime. Together they can raise "
            "someone's confidence in a guess about the readings from 10% to at most 70%."
        )
        assert "from 10% to at most 24%" in lines[1]
        assert "a fixed but high limit applies: all the reports" in lines[2]

    def test_single_reports_plan_appears_once(self, store: Store, tmp_path: Path):
        lines = self.learn(store, tmp_path, KEPT.replace("cap = 8", "cap = 2"))
        assert lines[0].startswith("room_temp: one report is planned in the device's lifetime. It can raise")
        assert not any("one report can" in line for line in lines)

    def test_many_small_reports_are_composed_with_delta(self, store: Store, tmp_path: Path):
        ask(store, KEPT.replace("epsilon = 2", "epsilon = 0.01").replace("cap = 8", "cap = 4"))
        (question,) = facts_of(store, tmp_path).questions
        # For 400 reports of 0.01, the squares sum to 0.04, so ½S + sqrt(2 S ln 10^6) is 1.071 rather than 4.
        assert question.most == 400
        assert question.planned.delta == 1e-6
        assert question.planned.epsilon == pytest.approx(0.02 + (2 * 0.04 * 13.8155) ** 0.5, abs=1e-3)
        guess, *lines = statement(store, tmp_path)["label"]["What can they learn about my home?"]
        assert guess.startswith("Suppose that someone guesses the readings and is 10%")
        assert "from 10% to at most 25%. The chance that more is revealed is" in lines[0]

    def test_two_questions_plans_add_up(self, store: Store, tmp_path: Path):
        both = policy.policy_for(8, 1e-6, ["room_temp", "room_temp_2"])
        path = tmp_path / "policy.json"
        path.write_text(json.dumps({"policy": both.to_dict()}))
        for name in ("room_temp", "room_temp_2"):
            ask(store, KEPT.replace('"room_temp"', f'"{name}"').replace("cap = 8", "cap = 2"))
        facts = fleet_facts.read(store, "home", None, path, AT)
        _, *lines = document.document(facts)["label"]["What can they learn about my home?"]
        # e^4 / (9 + e^4) is 0.8585.
        assert lines[2] == (
            "Together, all reports on today's questions can raise that confidence from 10% to at most 86%."
        )


class TestLabel:
    def test_answers_residents_five_questions(self, store: Store, tmp_path: Path):
        ask(store, windows=REPORTS_BY_DAY)
        content = statement(store, tmp_path)
        assert next(iter(content["label"])) == "What is asked?"
        label = label_of(content)
        answer = label[words.ASKED]
        assert "“How warm is it?” (room_temp). The answer is a number from 0 to 32 °C. In its" in answer
        assert "at most 4 reports about this" in answer
        assert "The reading itself never leaves the device" in answer
        who = label[words.WHO]
        assert "from heating@example.org. Anyone who reads only the results sees counts of all devices" in who
        assert "its network address, when it sends, and each code. The id stays the same" in who
        learn = label[words.LEARN]
        # e^2 / (9 + e^2) is 0.4509, e^8 / (9 + e^8) 0.997.
        assert (
            "room_temp: one report can raise someone's confidence in a guess about the reading from 10% to "
            "at most 46%." in learn
        )
        assert (
            "all the reports of the device's lifetime together can raise that confidence from 10% to near "
            "certainty." in learn
        )
        assert "room_temp: the counts of 1,000 reports can raise that confidence from 10% to at most" in learn
        assert "The chance that more is revealed is at most 1 in 1,000,000." in learn
        assert label[words.LONG] == (
            "room_temp: asked until 31 December 2027, and not after. The counts are kept for 400 days after "
            "the day on which they were counted, then erased. The device's id, and how many reports it sent, "
            "are kept until someone asks for them to be erased."
        )
        stop = label[words.STOP]
        assert "sends nothing until someone agrees at the device itself" in stop
        assert (
            "To agree, connect a computer to it and enter yes() at its prompt. Agreeing also covers" in stop
        )
        assert "It has no button. To stop it, connect a computer to it" in stop  # like the example
        assert "stops before its next report" in stop
        assert (
            "want the device's id and everything stored under it erased, write to heating@example.org" in stop
        )

    @pytest.mark.parametrize("public", [False, True])
    def test_says_that_a_group_is_not_protected(self, public: bool, store: Store, tmp_path: Path):
        ask(store, KEPT.replace("[budget]", 'group = "firmware"\ngroups = ["2.4.0"]\n[budget]'))
        facts = facts_of(store, tmp_path)
        label = label_of(document.document(facts, public=public))
        assert (
            "Each report also contains the device's firmware (2.4.0 or other). This is not hidden: anyone who"
            in label[words.ASKED]
        )
        assert label[words.LEARN].startswith("room_temp: the device's firmware is not protected, and none")

    def test_formats_retention_withdrawal_and_single_reports(self):
        week = words.storage_period(7 * 86_400, "hour")
        assert english(words.retention(["x"], None, True, week)) == (
            "x: asked until the owner ends it, because no last day is set. The counts are kept for 1 "
            "week after the hour in which they were counted, then erased."
        )
        assert english(words.retention(["x", "y"], AT.date(), False, week)).startswith(
            "x, y: no longer asked."
        )
        once = words.question("e", "Is it warm? ", Experiment.parse(experiment_json()), "", 1)
        assert english(once) == (
            "“Is it warm?” (e). The answer is yes or no. In its whole lifetime the device sends one report "
            "about this: one of 2 possible codes, which partly hides the answer."
        )
        (who,) = words.who(("a", "b"), ())
        assert english(who).startswith("The questions come from a and b. Anyone who reads only")

    @pytest.mark.parametrize(
        ("epsilon", "verb"),
        [(0.8, "hides"), (0.82, "partly hides"), (2.19, "partly hides"), (2.2, "hardly hides")],
    )
    def test_hiding_word_follows_from_epsilon(self, epsilon: float, verb: str):
        """e^ε / (9 + e^ε) is 20% at ε = ln(9 / 4) = 0.811, and 50% at ln(9) = 2.197."""
        experiment = Experiment.parse(experiment_json(epsilon=round(epsilon * 1e6)))
        for most in (1, 4):
            text = english(words.question("e", "Is it warm?", experiment, "", most))
            assert text.endswith(f"2 possible codes, which {verb} the answer.")


class TestHowToAgree:
    """The label states how to opt in, and how to see that no one has."""

    def yes(self, button: bool | None, light: bool | None, *, each: bool = False) -> str:
        return " ".join(map(english, words.consent(False, "", False, each, button, light)))

    def test_names_button_and_light_only_if_present(self):
        assert "hold its button for 3 seconds; its light confirms that with one long flash. As long" in (
            self.yes(True, True)
        )
        assert "hold its button for 3 seconds. Agreeing" in self.yes(True, False)
        assert "enter yes() at its prompt" in self.yes(False, True)
        assert "To agree" not in self.yes(None, None)

    def test_consent_covers_later_questions_unless_asked_each(self):
        assert "also covers questions that are asked later" in self.yes(True, True)
        assert "also covers" not in self.yes(True, True, each=True)

    def test_follows_folder_and_policy(self, tmp_path: Path):
        def sentences(consent: fleet_facts.Consent) -> list[str]:
            return list(
                map(
                    english,
                    words.consent(
                        consent.given,
                        consent.because,
                        consent.network,
                        consent.each,
                        consent.button,
                        consent.light,
                    ),
                )
            )

        folder = FleetFolder(tmp_path, FleetSpec("home", ("broker.example",)))
        asks_first = fleet_facts.Consent()
        unknown = tmp_path / "policy.json"  # for example from firmware in C
        unknown.write_text(json.dumps(POLICY.to_dict()))
        for fleet_folder in (folder, None):
            assert fleet_facts.consent_of(fleet_folder, POLICY, unknown) == asks_first
        signed = FleetFolder(tmp_path, FleetSpec("home", ("broker.example",), consent="forms of study 7"))
        given = fleet_facts.consent_of(signed, POLICY, unknown)
        assert given == fleet_facts.Consent(True, "forms of study 7")
        assert sentences(given)[0] == "The device was set up with your consent: forms of study 7."
        anyhow = dataclasses.replace(POLICY, consent_from="network", ask="each")
        network = " ".join(sentences(fleet_facts.consent_of(None, anyhow, unknown)))
        assert "sends nothing until someone agrees at the device itself" in network
        assert "The owner can also start it over the network." in network
        assert "Each question needs a separate yes, and another if it changes or reveals more." in network


class TestLog:
    """The label says who checks that every device is asked alike."""

    LOG = policy.PolicyLog("example.org/questions", tuple(c * 128 for c in "abc"), 2)

    def test_label_names_log_and_witnesses(self, store: Store, tmp_path: Path):
        ask(store)
        path = firmware(tmp_path)
        words_of_log = (
            "asked of every device alike: it is in the public log example.org/questions, checked by"
        )
        assert words_of_log not in str(statement(store, tmp_path))
        logged = dataclasses.replace(policy.read(path), log=self.LOG)
        path.write_text(policy.replace_policy(path.read_text(), policy.policy_statement(logged)))
        facts = fleet_facts.read(store, "home", None, path, AT)
        for public in (False, True):
            label = document.document(facts, public=public)["label"]
            assert f"{words_of_log} at least 2 of these witnesses: {'b' * 16}, {'c' * 16}." in str(label)
        assert f"checked by {'b' * 16} and {'c' * 16}." in str(document.document(facts)["chapters"])
        assert {file.path for file in facts.files} >= {f"/lib/{module}" for module in flash.LOG}


class TestErasing:
    """The label names a contact and the place where the device shows its id."""

    def test_id_location_comes_from_firmware(self, store: Store, tmp_path: Path):
        ask(store)
        path = firmware(tmp_path)
        assert label_of(statement(store, tmp_path))[words.STOP].endswith(f"The device's id: {'_' * 30}")
        path.write_text(path.read_text().replace("# ID_AT =", "ID_AT ="))
        content = document.document(fleet_facts.read(store, "home", None, path, AT))
        assert label_of(content)[words.STOP].endswith("The id is on the sticker underneath.")

    def test_json_policy_states_id_location(self, tmp_path: Path):
        path = tmp_path / "policy.json"
        values = {"policy": POLICY.to_dict(), "BUTTON": True, "LED": None, "ID_AT": "in the app"}
        path.write_text(json.dumps(values))
        assert policy.read(path) == POLICY
        consent = fleet_facts.consent_of(None, POLICY, path)
        assert (consent.button, consent.light, consent.id_at) == (True, False, "in the app")


class TestHowToStop:
    """The label and the tables name a button and a light only if the firmware has them."""

    def stop(self, text: str, folder: Path, suffix: str = ".py") -> str:
        path = folder / f"main{suffix}"
        path.write_text(text)
        consent = fleet_facts.consent_of(None, POLICY, path)
        return " ".join(map(english, words.stop_sentences(consent.button, consent.light)))

    def test_example_without_button(self):
        consent = fleet_facts.consent_of(None, POLICY, flash.EXAMPLE)
        assert (consent.button, consent.light) == (False, False)
        assert english(words.stop(consent.button)) == (
            "It has no button. To stop it, connect a computer to it and enter no() at its prompt."
        )

    def test_firmware_with_a_button(self, tmp_path: Path):
        assert self.stop("BUTTON = 14  # a pin\nLED = 'LED'\n", tmp_path).startswith(
            "To stop it from sending, hold its button for 3 seconds. Its light confirms that with 3 short"
        )
        assert "light" not in self.stop("BUTTON = 14\nLED = None\n", tmp_path)
        assert "light" not in self.stop("BUTTON = 14\n", tmp_path)

    @pytest.mark.parametrize(
        "text", ["", "BUTTON = pin()\n", "if rp2:\n    BUTTON = 14\n"], ids=["empty", "call", "condition"]
    )
    def test_unspecified_firmware_leaves_it_to_the_maker(self, tmp_path: Path, text: str):
        stop = self.stop(text, tmp_path)
        assert stop.startswith("To stop it, say no at the device [For the maker: how: its button or switch].")
        assert "button for" not in stop
        assert "light" not in stop

    def test_policy_alone_leaves_it_to_the_maker(self, tmp_path: Path):
        assert "[For the maker: how" in self.stop("{}", tmp_path, ".json")

    def test_seconds_and_flashes_match_the_board(self):
        board = flash.EXAMPLE.with_name("consent.py").read_text()
        assert f"_HOLD_MS = {words.BUTTON_SECONDS}_000\n" in board

    @pytest.mark.parametrize(
        ("light", "confirmed"),
        [
            ("2", "Three short flashes of its light. "),
            ("None", ""),
            ("pin()", "[For the maker: what the device shows] "),
        ],
        ids=["pin", "none", "call"],
    )
    def test_tables_mention_the_light_if_present(
        self, light: str, confirmed: str, store: Store, tmp_path: Path
    ):
        ask(store)
        path = firmware(tmp_path)
        path.write_text(path.read_text().replace("LED = None", f"LED = {light}"))
        content = document.document(fleet_facts.read(store, "home", None, path, AT))
        tables = [t for c in content["chapters"] for t in c["tables"] if t["title"].endswith("DelFunc-Stop")]
        (table,) = tables
        assert dict(table["rows"])["Confirmation"] == f"{confirmed}`status()` shows that consent was refused."

    @pytest.mark.parametrize(("light", "asks"), [("'LED'", True), ("None", False)])
    def test_button_agrees_to_a_question(self, tmp_path: Path, light: str, asks: bool):
        path = tmp_path / "main.py"
        path.write_text(f"BUTTON = 14\nLED = {light}\n")
        policy_each = dataclasses.replace(POLICY, ask="each")
        consent = fleet_facts.consent_of(None, policy_each, path)
        asking = words.consent(
            consent.given, consent.because, consent.network, consent.each, consent.button, consent.light
        )
        assert ("while the light asks" in " ".join(map(english, asking))) == asks
        assert english(words.stop(consent.button)).startswith(
            "To stop it from sending, hold its button for 3 seconds."
        )

    def test_tables_match_the_label(self, store: Store, tmp_path: Path):
        ask(store)
        content = json.dumps(statement(store, tmp_path))
        assert "button, held" not in content
        assert "its light" not in content


class TestNumbers:
    def test_match_store_and_policy(self, store: Store, tmp_path: Path):
        ask(store, windows=REPORTS_BY_DAY)
        content = statement(store, tmp_path)
        (version,) = store.experiments("home")
        seen = overview(Facts(store, AT), Selection("room_temp", "home")).all_windows
        rows = {what: value for what, (value, _) in numbers(content).items()}
        assert rows["room_temp: ε of a report"] == "2" == f"{version.experiment.epsilon / 1e6:g}"
        assert rows["room_temp: codes"] == f"{version.experiment.code_count:,}"
        assert rows["room_temp: reports of a device's lifetime"] == "4"
        assert rows["room_temp: last day"] == str(version.expires) == "2027-12-31"
        assert rows["room_temp: counts are kept"] == (
            "for 400 days after the day on which they were counted, then erased"
        )
        assert rows["room_temp: reports counted"] == "1,000"
        assert rows["room_temp: devices that reported"] == "20"
        assert rows["room_temp: reports of windows that were erased"] == "0"
        assert (
            rows["room_temp: ε of the counts of all ended windows that are kept"] == f"{seen.histogram:,.10g}"
        )
        assert rows["policy: Σε of a device's lifetime"] == f"{POLICY.sum / 1e6:g}"
        assert Decimal(rows["policy: Σε² of a device's lifetime"]) == Decimal(POLICY.squares) / 10**12
        assert rows["policy: ε of a report"] == "4"
        assert rows["ε of all reports of a device"] == "8"
        assert rows["δ of all reports of a device"] == "1e-06"
        assert all(source for _, source in numbers(content).values())
        sources = {source for _, source in numbers(content).values()}
        digest = version.experiment.digest.hex()
        assert {"main.py: POLICY sum", f"store: experiment room_temp {digest}, expires"} <= sources
        # The published file reveals nothing about the machine.
        assert str(tmp_path) not in json.dumps(content)

    def test_counts_are_absent_without_reports(self, store: Store, tmp_path: Path):
        ask(store)
        rows = numbers(statement(store, tmp_path))
        assert "room_temp: ε of the counts of all ended windows that are kept" not in rows
        assert rows["room_temp: reports counted"][0] == "0"

    def test_open_window_promises_only_answer_bound(self, store: Store, tmp_path: Path):
        ask(store, windows={"2026-11-26": 50})
        content = statement(store, tmp_path)
        assert numbers(content)["room_temp: ε of the counts of all ended windows that are kept"][0] == "none"
        assert "room_temp: the counts reveal no more than the reports" in label_of(content)[words.LEARN]

    def test_endless_window_leaves_erasure_to_owner(self, store: Store, tmp_path: Path):
        ask(store, KEPT.replace('window = "day"', 'window = "all"').replace('keep = "400d"', ""))
        assert (
            "The counts are kept until the owner erases them [For the maker: when that is]."
            in label_of(statement(store, tmp_path))[words.LONG]
        )


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from (key, *texts(inner))
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)


# The required fields and terms of schemas/deployments-schema.yaml in opendp/deployments-registry-data.
BASIC = {
    "name",
    "data_curators",
    "description",
    "intended_use",
    "data_product_type",
    "data_product_region",
    "publication_date",
}


def empty(store: Store, field: str) -> None:
    """Clear a text of every experiment, as in a store from before the text was required."""
    with store.writing() as connection:
        connection.execute(update(schema.experiment).values({field: ""}))


class TestMissingInput:
    @pytest.mark.parametrize("missing", ["owner", "purpose"])
    def test_names_file_and_field(self, missing: str, store: Store, tmp_path: Path):
        ask(store)
        empty(store, missing)
        with pytest.raises(StatementError) as error:
            statement(store, tmp_path)
        put = f'put {missing} = "..." into its experiment file'
        assert f"room_temp of fleet home has no {missing}: {put}" in str(error.value)
        assert "\n" not in str(error.value)

    def test_marks_undecided_retention(self, store: Store, tmp_path: Path):
        ask(store, KEPT.replace('keep = "400d"', ""))
        facts = facts_of(store, tmp_path)
        assert facts.undecided == ("room_temp",)
        content = document.document(facts)
        sentence = "The counts are kept until the owner erases them [Not decided: for how long]."
        assert sentence in label_of(content)[words.LONG]
        assert "<mark>[Not decided: for how long]</mark>" in page.html(document.sign(content, None))
        assert "[Not decided" in numbers(content)["room_temp: counts are kept"][0]

    def test_lists_withdrawn_question_without_its_text(self, store: Store, tmp_path: Path):
        ask(store, windows=REPORTS_BY_DAY)
        store.withdraw_experiment("home", "room_temp")
        empty(store, "owner")
        label = label_of(statement(store, tmp_path))
        assert label[words.WHO].startswith("The questions come from [For the maker: its owner]. Anyone")
        assert label[words.LONG].startswith("room_temp: no longer asked. The counts are kept")

    def test_rejects_fleet_without_questions(self, store: Store, tmp_path: Path):
        store.add_fleet("home", keyed=False)
        with fails("fleet home has no questions: add one with `hushmote experiment add`", StatementError):
            statement(store, tmp_path)

    def test_rejects_questions_refused_by_boards(self, store: Store, tmp_path: Path):
        ask(store, KEPT.replace("[budget]", 'group = "model"\ngroups = ["a"]\n[budget]'))
        with fails(r"refuse room_temp: give their actual firmware with --policy", StatementError):
            statement(store, tmp_path)
        ask(store, KEPT.replace("room_temp", "door_open"))
        ask(store)
        with fails(r"refuse door_open: give their actual firmware with --policy", StatementError):
            statement(store, tmp_path)


@pytest.fixture
def file(store: Store, tmp_path: Path) -> Path:
    ask(store, windows=REPORTS_BY_DAY)
    path = tmp_path / "statement.json"
    path.write_text(json.dumps(document.sign(statement(store, tmp_path), KEYS)))
    return path


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield from leaves(inner, (*path, key))
    else:
        yield path


class TestSigning:
    def test_rejects_another_fleets_keys(self, store: Store):
        store.add_fleet("home", keyed=True)
        fleet_facts.check_keys(store, "home", KEYS)
        store.set_master_check("home", "0" * 16)
        with fails("these are not the keys of fleet home", StatementError):
            fleet_facts.check_keys(store, "home", KEYS)
        with fails("fleet home has keys, so its statement must be signed: give its folder", StatementError):
            fleet_facts.check_keys(store, "home", None)

    def test_verifies_and_names_its_key(self, file: Path):
        signed, key, *files = document.verify(file)
        assert document.verify(file, KEYS.announce_key) == [signed, key, *files]
        assert signed.startswith("signed for fleet home on 2026-11-26T12:00:00+00:00")
        assert key == KEYS.announce_key.hex()
        assert any(line.startswith("ldp_client: as in this package, SHA-256 ") for line in files)
        assert files[-1].startswith(f"main: as {file.with_name('main.py')}, SHA-256 ")

    def test_rejects_statement_signed_by_another_key(self, file: Path):
        other = master_key.FleetKeys(KEYS.masters, bytes(31) + b"\x06")
        with fails(f"is signed with another key, {KEYS.announce_key.hex()}, than", StatementError):
            document.verify(file, other.announce_key)

    def test_requires_the_signing_key(self):
        counting = master_key.without_signing(KEYS)
        with fails("give --signing-key", StatementError):
            document.sign({"fleet": "home"}, counting)

    @pytest.mark.slow
    def test_detects_every_altered_value(self, file: Path):
        """Change each leaf of the file separately; each check takes a millisecond or two."""
        signed = json.loads(file.read_text())
        for path in leaves(signed):
            altered = json.loads(file.read_text())
            inner = altered
            for key in path[:-1]:
                inner = inner[key]
            was = inner[path[-1]]
            inner[path[-1]] = f"{was}0" if isinstance(was, str) else 1 if was != 1 else 2
            file.with_name("altered.json").write_text(json.dumps(altered))
            with pytest.raises(StatementError) as error:
                document.verify(file.with_name("altered.json"))
            assert "\n" not in str(error.value)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "{",
            "[]",
            "null",
            "1e999",
            "[" * 100_000,
            '{"statement": 1}',
            '{"statement": {"fleet": "A/b", "board_files": []}, "announce_key": "", "signature": ""}',
            '{"statement": {"fleet": "a", "board_files": [{"path": "/../../etc/passwd", "sha256": ""}]},'
            ' "announce_key": "", "signature": ""}',
            '{"statement": {"fleet": "a", "board_files": [3]}, "announce_key": "", "signature": ""}',
            "\udcff",
        ],
        ids=[
            "empty",
            "brace",
            "list",
            "null",
            "infinity",
            "100,000 brackets",
            "integer statement",
            "fleet",
            "path",
            "file",
            "not UTF-8",
        ],
    )
    def test_rejects_damaged_statement_in_one_line(self, text: str, tmp_path: Path):
        path = tmp_path / "s.json"
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        with fails(r"is not a statement, or is damaged", StatementError):
            document.verify(path)

    def test_marks_open_fleet_statement_as_unsigned(self, store: Store, tmp_path: Path):
        ask(store)
        signed = document.sign(statement(store, tmp_path), None)
        assert (
            signed["unsigned"]
            == "fleet home is open and has no signing key: nobody vouches for this statement"
        )
        assert signed["unsigned"] in page.html(signed)
        path = tmp_path / "s.json"
        path.write_text(json.dumps(signed))
        with fails("is unsigned: nobody can tell whether it was altered", StatementError):
            document.verify(path)

    def test_signature_cannot_pass_as_experiment(self):
        assert not topics.is_experiment(topics.statement_topic("home"))

    def test_names_changed_package_file(self, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        device = tmp_path / "device"
        (device / "umqtt").mkdir(parents=True)
        for path in [*flash.EXAMPLE.parent.glob("*.py"), flash.EXAMPLE.parent / "umqtt" / "simple.py"]:
            (device / path.relative_to(flash.EXAMPLE.parent)).write_bytes(path.read_bytes())
        monkeypatch.setattr(flash, "EXAMPLE", device / "main.py")
        document.verify(file)
        with (device / "mqtt_reporter.py").open("a") as f:
            f.write("\n")
        with fails(r"mqtt_reporter of this package is not the one that", StatementError):
            document.verify(file)

    def test_looks_for_application_next_to_statement(self, file: Path):
        file.with_name("main.py").unlink()
        with fails(
            r"main is not the file that .* names: put the firmware's main.py next to it", StatementError
        ):
            document.verify(file)

    def test_same_facts_give_the_same_bytes(self, store: Store, tmp_path: Path):
        ask(store, windows=REPORTS_BY_DAY)
        first, second = (json.dumps(document.sign(statement(store, tmp_path), KEYS)) for _ in range(2))
        assert first == second


class TestPage:
    def test_loads_nothing_and_begins_with_the_label(self, store: Store, tmp_path: Path):
        ask(store, KEPT.replace("How warm is it?", "<script>alert(1)</script> & so"))
        text = page.html(document.sign(statement(store, tmp_path), None))
        assert "<script" not in text
        assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; so" in text
        assert not re.search(
            r"(?:src|href)=(?!\"#)|url\(|@import", text
        )  # links within the page load nothing
        assert text.index('class="label"') < text.index('class="chapter"')
        assert text.count("<h2>") == len(words.QUESTIONS) + 11
        assert "<mark>[For a lawyer: yes or no]</mark>" in text
        assert "{" not in re.sub(r"<style>.*?</style>|<pre>.*?</pre>", "", text, flags=re.DOTALL)


class TestChapters:
    @pytest.mark.slow
    def test_lists_the_files_that_flash_copies(self, store: Store, tmp_path: Path):
        ask(store, KEPT.replace("bins = 32", 'bins = 32\nmechanism = "sw"\nstatistics = "mean"'))
        paths = [file["path"] for file in statement(store, tmp_path)["board_files"]]
        lib = [f"/lib/{m}" for m in flash.MODULES if m not in flash.OPTIONAL]
        assert paths == [*lib, "/lib/ldp_sw", "/lib/umqtt/simple", "/main"]

    def test_claim_support_not_compliance_and_defer_to_lawyers(self, store: Store, tmp_path: Path):
        ask(store, windows=REPORTS_BY_DAY)
        text = " ".join(texts(statement(store, tmp_path)))
        assert not re.search(r"compl(y|ies|iant|iance)|conform(s|ity)|certified", text, re.IGNORECASE)
        assert "supports" in text
        for place in ("names and addresses", "Article 6", "necessity", "third countries", "Sensitive"):
            assert place in text or place in " ".join(texts(statement(store, tmp_path)["chapters"]))
        assert text.count("[For a lawyer: ") >= 6

    def test_tables_have_the_standards_fields(self, store: Store, tmp_path: Path):
        ask(store)
        tables = {
            t["title"]: t for chapter in statement(store, tmp_path)["chapters"] for t in chapter["tables"]
        }
        fields = {title: [row[0] for row in table["rows"]] for title, table in tables.items()}
        assert fields["IXIT 21-PersData: PersData-room_temp"] == [
            "ID",
            "Description",
            "Purpose",
            "Aggregation",
            "Authorized Parties",
            "Lifecycle",
            "Processing Activities",
            "Secure Communication Mechanisms",
            "Sensitive",
            "Obtaining Consent",
            "Withdrawing Consent",
            "Storing Consent",
            "Anonymization",
        ]
        assert fields["IXIT 24-TelData: TelData-room_temp"] == [
            "ID",
            "Description",
            "Purpose",
            "Security Examination",
            "Personal Data",
        ]
        assert fields["IXIT 25-DelFunc: DelFunc-Stop"] == [
            "ID",
            "Description",
            "Target Type",
            "Initiation and Interaction",
            "Confirmation",
        ]
        assert fields["ICS"] == ["Provision 6-4", "Provision 6-5"]

    def test_registry_entry_matches_its_schema(self, store: Store, tmp_path: Path):
        ask(store, windows=REPORTS_BY_DAY)
        (entry,) = statement(store, tmp_path)["registry"]
        assert set(entry) == {"url_slug", "status", "tier", "deployment"}
        assert (entry["url_slug"], entry["status"], entry["tier"]) == ("hushmote-home-room-temp", "Draft", 3)
        facts = entry["deployment"]
        assert BASIC <= set(facts["basic"]) <= BASIC | {"data_product_sector"}
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", facts["basic"]["publication_date"])
        assert facts["basic"]["data_product_type"] == "Summary statistics"
        assert facts["dp_variant"]["variant_name"] == "Pure DP"
        assert facts["privacy_loss"]["privacy_parameters"] == {"epsilon": 2.0}
        model = facts["deployment_model"]
        assert (model["model_name"], model["release_type"]) == ("Local", "Many releases")
        assert (model["data_source_type"], model["access_type"]) == ("Dynamic", "Non-interactive")
        assert facts["administrative"]["registry_authors"] == ["heating@example.org"]

    def test_name_the_open_group_that_is_sent(self, store: Store, tmp_path: Path):
        ask(store)
        assert "firmware (" not in json.dumps(statement(store, tmp_path))
        ask(store, KEPT.replace("[budget]", 'group = "firmware"\ngroups = ["2.4.0"]\n[budget]'))
        content = statement(store, tmp_path)
        assert numbers(content)["room_temp: in each report, not protected"][0] == "firmware (2.4.0, other)"
        tables = {table["title"]: dict(row[:2] for row in table["rows"]) for table in tables_of(content)}
        data = tables["IXIT 21-PersData: PersData-room_temp"]
        assert "firmware (2.4.0, other) in the clear" in data["Description"]
        assert data["Aggregation"].endswith(", separately for each firmware.")
        assert data["Anonymization"].endswith("The firmware is not anonymized.")
        record = tables["Record of processing activities"]
        assert record["personal data"].endswith("; also the firmware version, which is not protected.")
        risk = tables["Annex to an impact assessment"]["(c) risk: what is not protected in reports"]
        assert "a return to an earlier one suggests that something failed" in risk
        (entry,) = content["registry"]
        assert "in the clear" in entry["deployment"]["dp_variant"]["unprotected_quantities"]

    def test_policy_in_json_names_no_application(self, store: Store, tmp_path: Path):
        ask(store)
        path = tmp_path / "policy.json"
        path.write_text(json.dumps(POLICY.to_dict()))
        content = fleet_facts.read(store, "home", None, path, AT)
        assert "/main" not in [file.path for file in content.files]
        assert firmware(tmp_path).exists()
