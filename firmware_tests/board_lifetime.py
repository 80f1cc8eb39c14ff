"""A board's lifetime with interruptions at any point, and the conditions that must hold when power returns.

lifetime() runs the sequence, Witness records what leaves the board, and check() reboots the board and
compares. every_cut() does this for every operation of the chip.
"""

import ldp_client
from flash_model import PowerCut
from ldp_client import LedgerError
from on_device import EPSILON, EXPERIMENTS, KEY, POLICY, READINGS, REPORTS

_thresholds = {}


def remember_thresholds():
    """Compute each truth threshold once, since the tests boot a board a thousand times."""
    compute = ldp_client.truth_threshold

    def threshold(epsilon, g):
        if (epsilon, g) not in _thresholds:
            _thresholds[epsilon, g] = compute(epsilon, g)
        return _thresholds[epsilon, g]

    ldp_client.truth_threshold = threshold


# Number of calls that a board makes after its flash has lost power while its processor still runs.
_CALLS_AFTER_THE_CUT = 3


class Witness:
    """A board as seen from outside: every report that it handed out, and every message that it received."""

    def __init__(self, chip=None):
        self.chip = chip
        self.calls = _CALLS_AFTER_THE_CUT
        self.provisioned = False
        self.reports = {}  # (name, number) -> the report's bytes
        self.last = dict.fromkeys(EXPERIMENTS, 0)  # name -> highest number seen
        self.unsent = []  # handed out, but sent() not yet called
        self.dropped = []  # all reports made before an opt-out took effect
        self.consent = None  # as client.consent; "changing" during an answer
        self.refused = False  # whether an opt-out has ever started
        self.names = {}
        for name, text in EXPERIMENTS.items():
            self.names[ldp_client.Experiment.parse(text.encode()).digest] = name

    def after_a_call(self):
        if self.chip is not None and self.chip.dead:
            self.calls -= 1
            if not self.calls:
                raise PowerCut

    def see(self, report):
        name = self.names[report[1:5]]
        number = int.from_bytes(report[5:9], "big")
        earlier = self.reports.get((name, number))
        if earlier is not None and earlier != report:
            raise AssertionError("a report number came with other bytes")
        self.reports[name, number] = report
        self.last[name] = max(number, self.last[name])
        if report in self.dropped:
            raise AssertionError("a report dropped by opting out came back")
        return name, number

    def provisioning_done(self):
        self.provisioned = True

    def sending(self, report):
        if report in self.unsent:
            self.unsent.remove(report)

    def answering(self, value):
        """Record that changing consent has started."""
        self.consent = "changing"
        if not value:
            self.refused = True
            self.unsent = []

    def answered(self, value):
        self.consent = value
        if not value:
            self.drop()

    def drop(self):
        """Record that an opt-out is in force: no earlier report may reappear."""
        self.dropped = list(self.reports.values())

    def handed_out(self, report):
        if self.consent in (None, False):
            raise AssertionError("a report without consent")
        _, number = self.see(report)
        if number > REPORTS:
            raise AssertionError("more reports than the budget holds")
        self.unsent.append(report)


remember_thresholds()


class Board:
    """One power-up of the board: the client as an application uses it, observed by the witness."""

    def __init__(self, client_class, storage, witness):
        self.client = client_class(POLICY, storage, "board-1", KEY)
        self.witness = witness
        for text in EXPERIMENTS.values():
            self.client.enroll(text.encode())

    def report(self, *names):
        for name in names:
            report = self.client.report(name, READINGS[name])
            if report is not None:
                self.witness.handed_out(report)
            self.witness.after_a_call()

    def send(self, report):
        self.witness.sending(report)
        try:  # noqa: SIM105 (MicroPython has no contextlib)
            self.client.sent(report)
        except LedgerError:
            pass  # the report stays, and is sent again
        self.witness.after_a_call()

    def see_outbox(self):
        reports = self.client.outbox()
        for report in reports:
            self.witness.see(report)
        return reports

    def send_all(self):
        for report in self.see_outbox():
            self.send(report)

    def answer(self, value):
        witness = self.witness
        witness.answering(value)
        try:
            self.client.consent = value
            witness.answered(value)
        except LedgerError:
            pass
        witness.after_a_call()


def lifetime(client_class, storage, witness):
    """Provision, enroll, report, send; then an outage, an opt-out, an opt-in, a reboot, and more reports."""
    try:
        ldp_client.provision(storage)
    except LedgerError:
        return  # the person at the board sees the error
    witness.provisioning_done()
    board = Board(client_class, storage, witness)
    board.report("door")
    board.answer(True)
    board.report("door")
    board.send_all()
    board.report("temperature", "mode")
    board.send_all()
    board = Board(client_class, storage, witness)
    board.report("door", "temperature", "door", "mode")  # the broker is unavailable
    board = Board(client_class, storage, witness)
    board.report("temperature")
    reports = board.see_outbox()
    for report in reports[1:3] + reports[:1] + reports[3:]:
        board.send(report)
    board.report("mode", "door")
    board.answer(False)
    board.report("door")
    board = Board(client_class, storage, witness)
    board.report("temperature")
    board.answer(True)
    board.report("mode")
    board = Board(client_class, storage, witness)
    board.report("temperature", "door")
    board.send_all()


def check(client_class, storage, witness):
    """Boot after the power cut, compare with the witness's record, then use up the budget.

    Raises:
        AssertionError: The message names the condition that does not hold.
    """
    locked = client_class(POLICY, storage, "board-1", KEY).status()["locked"]
    if locked:
        if witness.provisioned:
            raise AssertionError("the board is " + locked)
        try:
            ldp_client.provision(storage)
        except ldp_client.LedgerExists:
            raise AssertionError("an interrupted first provision cannot be repeated") from None
    board = Board(client_class, storage, witness)
    client = board.client
    outbox = board.see_outbox()
    _check_budget(client.status(), witness)
    if witness.consent != "changing" and client.consent is not witness.consent:
        raise AssertionError("an answer was forgotten")
    if not client.consent:
        witness.drop()
        board.report("door")
        if board.client.outbox():
            raise AssertionError("reports without a yes")
        board.answer(True)
    elif witness.consent is True:
        for report in witness.unsent:
            if report not in outbox:
                raise AssertionError("an unsent report is lost")
    _use_up(board)
    for report in Board(client_class, storage, witness).client.outbox():
        witness.see(report)


def _check_budget(status, witness):
    total = 0
    for name, last in witness.last.items():
        total += last
        reports = status["experiments"][name]["reports"]
        if reports < last:
            raise AssertionError("a report was handed out and not debited")
        if status["experiments"][name]["left"] > REPORTS - last:
            raise AssertionError("more budget than before")
        # Every debit is a report that was handed out, unless an opt-out may have dropped it before.
        if reports > last and not witness.refused:
            raise AssertionError("a debit without a report")
    if status["sum"] < total * EPSILON or status["squares"] < total * EPSILON * EPSILON:
        raise AssertionError("the lifetime's total is too small")


def _use_up(board):
    """Check that the board works: it reports exactly until its budget is used up."""
    client = board.client
    board.send_all()
    for name in EXPERIMENTS:
        reports_left = client.status()["experiments"][name]["left"]
        for _ in range(reports_left):
            report = client.report(name, READINGS[name])
            if report is None:
                raise AssertionError("no report though there is budget: " + str(client.status()["error"]))
            board.witness.handed_out(report)
            client.sent(report)
        if client.report(name, READINGS[name]) is not None:
            raise AssertionError("a report beyond the budget")
    if client.outbox():
        raise AssertionError("a report that was sent is still in the outbox")


class Tally:
    """The cuts that were tried, and their failures: {reason: count}."""

    def __init__(self):
        self.cuts = 0
        self.broken = {}

    def failures(self):
        return sum(self.broken.values())


def _run_one(medium, client_class, tally, **fault):
    """Run one life with one fault, then check it; return whether the life was completed."""
    chip = medium.chip(medium.blank_image)
    witness = Witness(chip)
    storage = medium.mount(chip)
    chip.arm(**fault)
    reason = None
    try:
        lifetime(client_class, storage, witness)
    except PowerCut:
        pass
    except AssertionError as e:  # a condition already failed during the life
        reason = str(e)
    done = not chip.dead
    chip.stop()
    medium.umount()
    if reason is None:
        reason = _verdict(medium, client_class, chip, witness)
    tally.cuts += 1
    if reason is not None:
        tally.broken[reason] = tally.broken.get(reason, 0) + 1
    return done


def _verdict(medium, client_class, chip, witness):
    chip = medium.chip(chip.image())
    witness.chip = None
    try:
        storage = medium.mount(chip)
    except OSError:
        return "the file system does not mount"
    try:
        check(client_class, storage, witness)
    except AssertionError as e:
        return str(e)
    except (OSError, LedgerError) as e:
        return "after the power cut: " + str(e)
    finally:
        medium.umount()
    return None


def operations(medium, client_class):
    """Return the number of operations in a whole lifetime, which must pass the check without a cut."""
    medium.blank_image = medium.chip().image()
    tally = Tally()
    chip = medium.chip(medium.blank_image)
    storage = medium.mount(chip)
    lifetime(client_class, storage, Witness())
    medium.umount()
    count = chip.ops
    _run_one(medium, client_class, tally)
    return count, tally


SHARES = ("none", "half", "whole")
MODES = ("raise", "silent", "eio")


def every_cut(medium, client_class, mode, shares=SHARES, step=1):
    """Cut the power before, during and after every operation; return a Tally.

    With `step`, cut only at every step-th operation, at different ones in each mode and share.
    """
    medium.blank_image = medium.chip().image()
    tally = Tally()
    for i in range(len(shares)):
        cut = (MODES.index(mode) + len(MODES) * i) % step
        while not _run_one(medium, client_class, tally, cut=cut, share=shares[i], mode=mode):
            cut += step
    return tally


def every_blip(medium, client_class, window, shares=SHARES, step=1):
    """Let every operation fail once, and cut the power at each of the `window` operations after it.

    With `step`, only at every step-th operation, at different ones in each share.
    """
    medium.blank_image = medium.chip().image()
    tally = Tally()
    count, _ = operations(medium, client_class)
    for i in range(len(shares)):
        blip_share = shares[i]
        for blip in range(i % step, count, step):
            for cut in range(blip + 1, blip + 1 + window):
                share = "half" if cut & 1 else "none"
                _run_one(medium, client_class, tally, cut=cut, share=share, blip=blip, blip_share=blip_share)
    return tally
