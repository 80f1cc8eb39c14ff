"""Test budgets that the server derives from theorems: the number of reports, and changes of ε.

CASES, VERSIONS and PAYLOAD are literals, so that this file runs on a board without further files;
tests/server/experiments/test_budget_agreement.py recomputes all of them from the server's theorems.
"""

import ldp_client
import on_device
from on_device import raises

NEEDS = ("urandom", "fast")

# An experiment as the server publishes it: micro-nats per report, the budget.
PAYLOAD = (
    '{"v":1,"name":"door","type":"bool","mechanism":"rr","epsilon":%d,"every":1,"budget":{%s},"window":"day"}'
)

# The budget in the analyst's file, a report's micro-nats, the budget on the board, and the allowed reports.
CASES = (
    ('theorem = "basic"\nepsilon = 8', 500000, '"rule":"sum","cap":8000000', 16),
    ('theorem = "basic"\nepsilon = 8', 300000, '"rule":"sum","cap":8000000', 26),
    ('theorem = "basic"\nepsilon = 8\nreports = 5', 500000, '"rule":"sum","cap":2500000', 5),
    ('theorem = "zcdp"\nepsilon = 8\ndelta = 1e-6', 500000, '"rule":"squares","cap":1819413659380', 7),
    ('theorem = "zcdp"\nepsilon = 8\ndelta = 1e-6', 200000, '"rule":"squares","cap":1819413659380', 45),
    (
        'theorem = "zcdp"\nepsilon = 8\ndelta = 1e-6\nreports = 12',
        200000,
        '"rule":"squares","cap":480000000000',
        12,
    ),
    ('theorem = "optimal"\nepsilon = 8\ndelta = 1e-6', 500000, '"rule":"count","cap":16', 16),
    ('theorem = "optimal"\nepsilon = 4\ndelta = 1e-6', 150000, '"rule":"count","cap":34', 34),
    ('theorem = "optimal"\nepsilon = 8\ndelta = 1e-6\nreports = 9', 500000, '"rule":"count","cap":9', 9),
    ('theorem = "advanced"\nepsilon = 8\ndelta = 1e-6', 200000, '"rule":"count","cap":36', 36),
    ('theorem = "none"', 500000, '"rule":"unlimited"', None),
)

# An experiment's versions in the order in which boards get them: the budget in the analyst's file and on the
# board, then for each version a report's micro-nats, the number of calls (99: beyond the budget's end), and
# the number of reports made.
VERSIONS = (
    (
        'theorem = "basic"\nepsilon = 8',
        '"rule":"sum","cap":8000000',
        ((500000, 3, 3), (200000, 5, 5), (1000000, 99, 5), (250000, 99, 2)),
    ),
    (
        'theorem = "zcdp"\nepsilon = 8\ndelta = 1e-6',
        '"rule":"squares","cap":1819413659380',
        ((500000, 3, 3), (200000, 5, 5), (600000, 99, 2), (100000, 99, 14)),
    ),
)

POLICY = {
    "sum": (1 << 48) - 1,
    "squares": 0,
    "epsilon": 16000000,
    "rules": ("sum", "squares", "count", "unlimited"),
    "experiments": ("door",),
}


class Memory:
    def __init__(self):
        self.slots = [None] * 2

    def read(self, slot):
        return self.slots[slot]

    def write(self, slot, data):
        self.slots[slot] = bytes(data)


def boot(storage, policy=POLICY):
    return ldp_client.Client(policy, storage, "board-1")


def new_board(policy=POLICY):
    storage = Memory()
    ldp_client.provision(storage, consent=True)
    return boot(storage, policy), storage


def enroll(client, epsilon, budget):
    return client.enroll((PAYLOAD % (epsilon, budget)).encode())


def ask(client, calls):
    """Call report() `calls` times and acknowledge every report; return the number of reports."""
    reports = 0
    for i in range(calls):
        report = client.report("door", i % 3 == 0)
        if report is not None:
            reports += 1
            client.sent(report)
    return reports


def reports_left(client):
    return client.status()["experiments"]["door"]["left"]


def test_report_count_matches_theorem():
    for text, epsilon, budget, reports in CASES:
        client, storage = new_board()
        enroll(client, epsilon, budget)
        if reports is None:  # without a theorem, only the policy limits reports
            assert ask(client, 40) == 40, text
            continue
        assert reports_left(client) == reports, (text, reports_left(client))
        first = reports // 2
        assert ask(client, first) == first, text
        client = boot(storage)  # the budget survives a restart
        enroll(client, epsilon, budget)
        assert reports_left(client) == reports - first, (text, reports_left(client))
        reports_made = first + ask(client, reports - first + 10)
        assert reports_made == reports, (text, reports_made)
        assert client.status()["experiments"]["door"]["state"] == "spent", text


def test_epsilon_may_change_between_versions_for_sum_and_squares():
    for text, budget, versions in VERSIONS:
        client, storage = new_board()
        for epsilon, calls, reports in versions:
            enroll(client, epsilon, budget)
            reports_made = ask(client, calls)
            assert reports_made == reports, (text, epsilon, reports_made)
            client = boot(storage)
        assert client.status()["experiments"]["door"]["reports"] == sum([v[2] for v in versions])


def test_count_rule_refuses_changed_epsilon_with_reason():
    reason = "its epsilon was pinned as 500000"
    budget = '"rule":"count","cap":9'
    client, storage = new_board()
    enroll(client, 500000, budget)
    assert ask(client, 2) == 2
    for epsilon in (250000, 1000000):
        assert raises(ldp_client.ExperimentRefused, enroll, client, epsilon, budget) == reason
        assert client.status()["experiments"]["door"]["reason"] == reason
    assert ask(client, 3) == 3  # the previous version stays in force
    client = boot(storage)
    assert raises(ldp_client.ExperimentRefused, enroll, client, 250000, budget) == reason
    line = client.status()["experiments"]["door"]
    assert (line["state"], line["reason"]) == ("refused", reason)
    enroll(client, 500000, budget)
    assert ask(client, 20) == 4


def test_version_neither_changes_rule_nor_raises_cap():
    client, _ = new_board()
    enroll(client, 1000000, '"rule":"sum","cap":4000000')
    assert ask(client, 3) == 3
    for rule in ("squares", "count"):
        text = raises(ldp_client.ExperimentRefused, enroll, client, 1000000, f'"rule":"{rule}","cap":9000000')
        assert text == "its budget rule was pinned as sum", text
    enroll(client, 500000, '"rule":"sum","cap":9000000')
    assert ask(client, 20) == 2


def test_policy_enforces_both_caps_whatever_experiments_request():
    policy = dict(POLICY)
    policy["sum"] = 2000000
    policy["squares"] = 600000000000
    client, _ = new_board(policy)
    enroll(client, 500000, '"rule":"unlimited"')
    assert ask(client, 20) == 4  # within the sum; the squares would have ended after two
    enroll(client, 100000, '"rule":"unlimited"')
    assert ask(client, 20) == 0
    client, _ = new_board(policy)
    enroll(client, 100000, '"rule":"unlimited"')
    assert ask(client, 80) == 60  # within the squares; the sum would have ended after twenty


on_device.run(globals())
