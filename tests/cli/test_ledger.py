"""`hushmote ledger`: a fleet's and a board's remaining reports, compared with the clients' ledgers."""

import datetime
import json
from typing import Any

import pytest
from boards import ask_fleet
from enumeration import MemoryStorage
from experiments import experiment_json
from refusals import fails
from sqlalchemy import update
from typer.testing import CliRunner

from hushmote.cli.main import app
from hushmote.device.ldp_client import Client, provision
from hushmote.server.budgets import board_status, policy
from hushmote.server.budgets import remaining as fleet_ledger
from hushmote.server.budgets.board_status import StatusRefused
from hushmote.server.budgets.policy import Policy
from hushmote.server.errors import UsageError
from hushmote.server.ingest.pipeline import fleets, ingest
from hushmote.server.store import Store, StoreError, schema

TODAY = datetime.datetime.now(datetime.UTC).date()
POLICY = Policy(5_000_000, 0, 2_000_000, ("sum", "squares", "count", "unlimited"), ("a", "b"))
A = experiment_json(name="a", epsilon=1_000_000, budget={"rule": "sum", "cap": 4_000_000}, every=2)
B = experiment_json(name="b", epsilon=500_000, budget={"rule": "count", "cap": 6})


def ledger(*arguments: str):
    return CliRunner().invoke(app, ["ledger", *arguments])


def boot(device: str, storage: Any, payloads=(A, B)) -> Any:
    if not storage.slots:
        provision(storage, consent=True)
    client = Client(POLICY.to_dict(), storage, device_id=device)
    for payload in payloads:
        client.enroll(payload)
    return client


def receive(store: Store, messages: list[tuple[str, bytes]]) -> None:
    tally = ingest(store, messages, fleets(store), datetime.datetime.now(datetime.UTC))
    assert tally.accepted == len(messages)


def calls(client: Any, name: str, wanted: int) -> list[bytes]:
    payloads = []
    while len(payloads) < wanted:
        report = client.report(name, True)
        if report is not None:
            client.sent(report)
            payloads.append(report)
    return payloads


@pytest.fixture
def url(tmp_path):
    """Provide a store to which boards d0 to d3 have sent reports for experiments a and b."""
    url = f"sqlite:///{tmp_path / 's.sqlite'}"
    with Store(url) as store:
        ask_fleet(store, "home", A)
        store.add_experiment("home", B)
        messages = []
        for i, (of_a, of_b) in enumerate(((0, 6), (1, 0), (4, 2), (3, 1))):
            client = boot(f"d{i}", MemoryStorage())
            payloads = calls(client, "a", of_a) + calls(client, "b", of_b)
            messages += [(f"hushmote/v1/home/report/d{i}", report) for report in payloads]
        receive(store, messages)
    return url


def read(url: str, known: Policy | None = None, boards: int | None = None, devices=()):
    with Store(url, create=False) as store:
        return fleet_ledger.read(store, "home", TODAY, known, boards, devices)


def damage(url: str, name: str) -> None:
    with Store(url) as store, store.writing() as connection:
        connection.execute(
            update(schema.experiment).where(schema.experiment.c.name == name).values(payload=b"{")
        )


REPORTS_MADE = {"d0": (0, 6), "d1": (1, 0), "d2": (4, 2), "d3": (3, 1)}


class TestRemainingBudget:
    def test_matches_board_status(self, url):
        remaining = read(url, POLICY, devices=REPORTS_MADE)
        assert remaining.devices == REPORTS_MADE
        for device, (of_a, of_b) in REPORTS_MADE.items():
            client = boot(device, MemoryStorage())
            calls(client, "a", of_a)
            calls(client, "b", of_b)
            status = client.status()["experiments"]
            assert remaining.remaining_reports(REPORTS_MADE[device]) == (
                status["a"]["left"],
                status["b"]["left"],
            )

    def test_totals_with_policy_and_silent_boards(self, url):
        lines = {line.budget.experiment.name: line for line in read(url).lines(TODAY)}
        assert (lines["a"].holds, lines["a"].total_left, lines["a"].silent) == (4, 4 + 3 + 0 + 1, 1)
        assert lines["a"].left_counts == {0: 1, 1: 1, 3: 1, 4: 1}
        assert (lines["b"].holds, lines["b"].total_left, lines["b"].silent) == (6, 0 + 6 + 4 + 5, 1)
        under = {line.budget.experiment.name: line for line in read(url, POLICY, boards=10).lines(TODAY)}
        assert (under["a"].total_left, under["a"].boards) == (2 + 3 + 0 + 1 + 6 * 4, 10)
        assert under["b"].total_left == 0 + 6 + 0 + 3 + 6 * 6

    def test_infers_lost_reports_from_later_reports(self, tmp_path):
        url = f"sqlite:///{tmp_path / 's.sqlite'}"
        with Store(url) as store:
            ask_fleet(store, "home", A)
            third = calls(boot("d", MemoryStorage(), (A,)), "a", 3)[2]
            receive(store, [("hushmote/v1/home/report/d", third)])
        line = read(url).lines(TODAY)[0]
        assert (line.budget.accepted, line.total_left) == (1, 1)

    def test_mixed_epsilons_count_as_largest(self, url):
        cheap = A.replace(b'"epsilon": 1000000', b'"epsilon": 500000')
        with Store(url) as store:
            store.add_experiment("home", cheap)
            report = calls(boot("d9", MemoryStorage(), (cheap,)), "a", 2)[1]
            receive(store, [("hushmote/v1/home/report/d9", report)])
            store.withdraw_experiment("home", "b")
        remaining = read(url, devices=["d9"])
        line = remaining.lines(TODAY)[0]
        assert (line.budget.cheapest, line.budget.costliest, line.holds) == (500_000, 1_000_000, 8)
        # The board has 6 reports of a left; the server cannot know, so it states only what is certain.
        assert remaining.remaining_reports(remaining.devices["d9"]) == (4, 0)
        assert remaining.budgets[1].state == "withdrawn"
        output = ledger("--store", url).output
        assert "a: versions differ in ε" in output
        assert "withdrawn" in output

    def test_is_zero_if_policy_refuses(self, url):
        for other in (
            Policy(5_000_000, 0, 999_999, ("sum", "count"), ("a", "b")),
            Policy(5_000_000, 0, 2_000_000, ("count",), ("a", "b")),
            Policy(5_000_000, 0, 2_000_000, ("sum", "count"), ("b",)),
        ):
            lines = read(url, other).lines(TODAY)
            assert [line.budget.state for line in lines] == ["refused", "current"]
            assert lines[0].total_left == 0

    def test_dates_follow_from_rate_and_shared_lifetime(self):
        def days(made_b: int, known: Policy | None):
            """Return the days until boards that report daily to both experiments fall silent."""
            yesterday = TODAY - datetime.timedelta(1)
            experiments = [
                boot("x", MemoryStorage()).enroll(p) for p in (A.replace(b'"every": 2', b'"every": 1'), B)
            ]
            budgets = tuple(
                fleet_ledger.BudgetLine(e, "current", e.epsilon, e.epsilon, 100, {yesterday: 100})
                for e in experiments
            )
            lines = fleet_ledger.FleetLedger("home", budgets, {(0, made_b): 100}, known).lines(TODAY)
            return [(line.dry - TODAY).days for line in lines if line.dry]

        assert days(0, None) == [4, 6]
        assert days(0, POLICY) == [
            3,
            4,
        ]  # Σε is 1.5 a day: 4.5 after three days, and 5 after another report of 0.5
        assert days(2, POLICY) == [3, 3]


class TestOutput:
    def test_table_fits_80_columns_and_states_unknowns(self, url, tmp_path):
        (tmp_path / "main.py").write_text(policy.policy_statement(POLICY))
        result = ledger("--store", url, "--policy", str(tmp_path / "main.py"), "--device", "d3")
        assert result.exit_code == 0, result.output
        assert "the devices' own ledgers may show more" in " ".join(result.output.split())
        assert "d3" in result.output
        assert max(map(len, result.output.splitlines())) <= 80

    def test_json_has_every_number(self, url):
        fields = json.loads(ledger("--store", url, "--device", "d1", "--json").output)
        first = fields["experiments"][0]
        assert (first["experiment"], first["left"], first["left_counts"]["0"]) == ("a", 8, 1)
        assert fields["devices"]["d1"]["a"] == {"made": 1, "left": 3}
        assert first["per_day"] is None  # only today exists, and it is not over

    def test_leaves_out_only_what_cannot_be_read(self, url):
        whole = {
            e["experiment"]: e for e in json.loads(ledger("--store", url, "--json").output)["experiments"]
        }
        damage(url, "a")
        result = ledger("--store", url, "--json")
        assert isinstance(result.exception, StoreError)
        assert str(result.exception).startswith("experiment a of fleet home cannot be read here: ")
        fields = json.loads(result.stdout)
        assert fields["experiments"] == [whole["b"]]
        assert [e["experiment"] for e in fields["unreadable"]] == ["a"]

    def test_policy_needs_every_experiment(self, url):
        """The experiments share a device's budget, so what is left would be too much."""
        damage(url, "a")
        with fails("experiment a of fleet home cannot be read here", StoreError):
            read(url, POLICY)

    @pytest.mark.slow
    def test_writes_plot_before_rate_is_known(self, url, tmp_path):
        assert ledger("--store", url, "--plot", str(tmp_path / "l.svg")).exit_code == 0
        assert "<svg" in (tmp_path / "l.svg").read_text("utf-8")

    @pytest.mark.parametrize(
        ("arguments", "error", "text"),
        [
            (("--fleet", "nope"), UsageError, "s.sqlite; its fleets: home"),
            (("--per-day", "1"), UsageError, "--per-day requires --status"),
            (
                ("--devices", "1"),
                UsageError,
                "--devices must be the number of all devices",
            ),
            (("--status", "-", "--devices", "3"), UsageError, "omit them, or omit --status"),
            (("--plot", "l.txt"), UsageError, "must end in .png, .pdf or .svg"),
        ],
        ids=["unknown fleet", "rate", "too few devices", "devices with status", "plot"],
    )
    def test_contradictory_options_give_one_line(self, url, arguments, error, text):
        exception = ledger("--store", url, *arguments).exception
        assert isinstance(exception, error)
        assert text in str(exception)


class TestBoardStatus:
    def test_reads_json_and_python_output(self, tmp_path):
        client = boot("d", MemoryStorage(), (A,))
        calls(client, "a", 3)
        (tmp_path / "policy.py").write_text(policy.policy_statement(POLICY))
        for text in (json.dumps(client.status()), f"boot\n{client.status()}\n"):
            arguments = ("--status", "-", "--policy", str(tmp_path / "policy.py"), "--per-day", "0.5")
            result = CliRunner().invoke(app, ["ledger", *arguments], input=text)
            assert result.exit_code == 0, result.output
            (row,) = (line.split() for line in result.output.splitlines() if line.startswith("a "))
            assert row[-5:] == ["1", "3", "1", "2", "days"]  # ε, made, left, silent in
            assert "Σε = 3 of 5" in result.output
            fields = CliRunner().invoke(app, ["ledger", *arguments, "--json"], input=text).output
            status = json.loads(fields)
            a, b = status["experiments"]
            assert (status["sum"], status["squares"], a["epsilon"], b["epsilon"]) == (3, 3, 1, None)
            assert (a["made"], a["left"], a["days_left"]) == (3, 1, 2.0)
            assert (b["state"], b["left"]) == ("absent", None)

    def test_shows_locked_board(self):
        locked: Any = Client(POLICY.to_dict(), MemoryStorage(), device_id="d")
        result = CliRunner().invoke(app, ["ledger", "--status", "-"], input=json.dumps(locked.status()))
        assert "no reports: locked: no ledger; provision this board" in result.output

    @pytest.mark.parametrize(
        "text", ["", "x", "[]", "{}", '{"locked": 1}', "{" * 1000, '{"experiments": {"a": 1}}']
    )
    def test_malformed_input_gives_one_line(self, text):
        with fails(r"not what client.status\(\) returns", StatusRefused):
            board_status.parse(text)
