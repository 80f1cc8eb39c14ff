"""A policy with "log": boards take only what the log has, on CPython and on each MicroPython."""

import functools
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import log_cases
import numpy as np
import pytest
import reference_board as ref
import reference_log
from enumeration import memory
from experiments import experiment_json
from micropython import ROOT, _find, load
from write_log import power_cuts, record

from hushmote.device import consent, ldp_client, ldp_p256, preview, reporter_status
from hushmote.device.kept_experiments import KeptExperiments
from hushmote.device.ldp_client import Client, ExperimentRefused, SettingsError
from hushmote.device.reporter_base import BaseReporter
from hushmote.server.wire import keys, topics

FLEET = "home"
SIGNING = bytes(31) + b"\x07"
PRIVATE = (0x1101, 0x2202, 0x3303)
ORIGIN = "example.org/questions"
LOG = {"origin": ORIGIN, "keys": tuple(ref.public_key(key).hex() for key in PRIVATE), "need": 2}
POLICY: dict[str, Any] = {
    "sum": 2**47,
    "squares": 0,
    "epsilon": 16_000_000,
    "rules": ("sum", "count"),
    "experiments": ("room_temp", "door_open"),
    "log": LOG,
}
MISSING = "its proof from the log is missing"
MALFORMED = "its proof is malformed"
WRONG = "it is not in the log, or a signature in its proof is wrong"
TOO_FEW = "too few witnesses have signed its proof"
TOPIC = topics.experiment_topic(FLEET, "room_temp")


def signed(serial: int, name: str = "room_temp", **fields: Any) -> bytes:
    body = experiment_json(name=name, **fields)
    return keys.sign_experiment(SIGNING, topics.experiment_topic(FLEET, name), body, serial)


def withdrawn(serial: int) -> bytes:
    return keys.sign_experiment(SIGNING, TOPIC, b"", serial)


def proof(payload: bytes, index: int = 17, size: int = 1000, signers: tuple[int, ...] = (0, 1, 2)) -> bytes:
    return reference_log.proof_of(ORIGIN, PRIVATE, signers, TOPIC, payload, index, size)


def start(folder: Path | None, **changes: Any) -> KeptExperiments:
    storage = memory()
    ldp_client.provision(storage, consent=True)
    policy = {name: value for name, value in (POLICY | changes).items() if value is not None}
    client = Client(policy, storage, "board-1", announce_key=keys.public_key_bytes(SIGNING), fleet=FLEET)
    return KeptExperiments(client, None if folder is None else str(folder))


def receive(kept: KeptExperiments, *messages: tuple[str, bytes]) -> list[str | None]:
    """Consider messages as they arrive; return why each was refused."""
    reasons = []
    for name, payload in messages:
        kept.put_aside(name, payload)
        while kept.waiting:
            reasons.append(kept.consider()[1])
    return reasons


def line(kept: KeptExperiments) -> dict[str, Any]:
    return kept._client.status()["experiments"]["room_temp"]


def leaf(kept: KeptExperiments) -> int | None:
    """Return the index of the experiment in force."""
    return line(kept)["leaf"] if line(kept)["state"] == "reporting" else None


class TestPolicy:
    @pytest.mark.parametrize(
        ("log", "words"),
        [
            ({}, "must have origin, keys"),
            ("example.org", "must have origin, keys"),
            ({**LOG, "witnesses": 2}, "must have origin, keys"),
            ({"origin": ORIGIN, "keys": LOG["keys"]}, "must have origin, keys"),
            ({**LOG, "keys": LOG["keys"][0]}, "must have origin, keys"),
            ({**LOG, "origin": ""}, "origin must be"),
            ({**LOG, "origin": "two words"}, "origin must be"),
            ({**LOG, "origin": "a+b"}, "origin must be"),
            ({**LOG, "origin": "a\nb"}, "origin must be"),
            ({**LOG, "origin": "é.example"}, "origin must be"),
            ({**LOG, "origin": "a" * 256}, "origin must be"),
            ({**LOG, "origin": b"example.org"}, "origin must be"),
            ({**LOG, "keys": LOG["keys"][:1], "need": 1}, "keys must be 2 to 8"),
            ({**LOG, "keys": LOG["keys"] * 2}, "keys must be 2 to 8"),
            ({**LOG, "keys": (LOG["keys"][0], LOG["keys"][0].upper())}, "keys must be 2 to 8"),
            ({**LOG, "keys": (*LOG["keys"], "00" * 63)}, "keys must be 2 to 8"),
            ({**LOG, "keys": (*LOG["keys"], "zz" * 64)}, "keys must be 2 to 8"),
            ({**LOG, "keys": (*LOG["keys"], b"00" * 64)}, "keys must be 2 to 8"),
            ({**LOG, "keys": tuple(f"{n}" * 128 for n in range(9))}, "keys must be 2 to 8"),
            (
                {**LOG, "keys": (*LOG["keys"], LOG["keys"][1][:8] + "1" * 120)},
                "keys must .* differ in the first 8",
            ),
            ({**LOG, "need": 0}, "need must be more than half of the witnesses, at least 2 of 2"),
            ({**LOG, "need": 1}, "need must be more than half of the witnesses"),
            ({**LOG, "need": 3}, "need must be more than half of the witnesses"),
            ({**LOG, "need": True}, "need must be more than half of the witnesses"),
            ({**LOG, "keys": (*LOG["keys"], "1" * 128, "2" * 128)}, "need must be .*, at least 3 of 4"),
        ],
    )
    def test_rejects_malformed_log_in_one_line(self, log: Any, words: str):
        with pytest.raises(SettingsError, match=rf"^policy: log('s)? {words}[^\n]*$"):
            Client(POLICY | {"log": log}, memory(), "b", None, bytes(64), FLEET)

    def test_requires_an_announce_key(self):
        with pytest.raises(SettingsError, match=r"^policy: log requires announce_key"):
            Client(POLICY, memory(), "b", fleet=FLEET)

    def test_only_a_policy_without_the_field_has_no_log(self):
        policy = {name: value for name, value in POLICY.items() if name != "log"}
        assert Client(policy, memory(), "b", fleet=FLEET).log is None
        for log in (None, False, 0, "", (), [], {}):
            with pytest.raises(SettingsError, match=r"^policy: log must have origin, keys"):
                Client(policy | {"log": log}, memory(), "b", None, bytes(64), FLEET)

    @pytest.mark.parametrize(("count", "need"), [(2, 1), (3, 2), (4, 2), (5, 3), (8, 4), (8, 7)])
    def test_accepts_more_than_half_of_one_to_seven_witnesses(self, count: int, need: int):
        some = {"origin": "a", "keys": [f"{n}" * 128 for n in range(count)], "need": need}
        assert Client(POLICY | {"log": some}, memory(), "b", None, bytes(64), FLEET).log


class TestEnroll:
    @pytest.fixture
    def client(self) -> Client:
        return start(None)._client

    @pytest.mark.parametrize("ask", ["once", "each"])
    def test_refuses_list_as_every(self, ask: str, verified: list[bytes]):
        kept = start(None, ask=ask, groups=("firmware",))
        fields = {"group": "firmware", "groups": ["2.4.0"]}
        for number, every in ((5, [1, 2**24]), (6, [2, 2])):
            payload = signed(number, every=every, **fields)
            reasons = receive(kept, ("room_temp/proof", proof(payload)), ("room_temp", payload))
            assert reasons[-1] == "every must be one number with a log"
        assert (verified, kept.asking, leaf(kept)) == ([], {}, None)
        payload = signed(7, every=2, **fields)
        receive(kept, ("room_temp/proof", proof(payload)), ("room_temp", payload))
        if ask == "each":
            kept.agree("room_temp")
        assert leaf(kept) == 17

    def test_takes_only_what_the_log_has(self, client: Any):
        payload = signed(5)
        for data, why in (
            (None, MISSING),
            (b"", MISSING),
            (b"\0" * 8, MALFORMED),
            (proof(payload)[:-1], MALFORMED),
            (proof(payload) + bytes(1601), MALFORMED),
            (proof(signed(6)), WRONG),
            (proof(payload, signers=(0, 2)), TOO_FEW),
            (proof(payload, signers=(1, 2)), WRONG),
        ):
            if data is not None:
                client.log.proofs["room_temp"] = data
            with pytest.raises(ExperimentRefused, match=f"^{why}$"):
                client.enroll(payload)
            assert client.status()["experiments"]["room_temp"]["reason"] == why
            assert client.serials == {}
            assert client.report("room_temp", True) is None
        client.log.proofs["room_temp"] = proof(payload)
        assert client.enroll(payload).leaf == 17
        assert client.report("room_temp", True) is not None

    def test_verified_payload_still_needs_proof(self, client: Any):
        with pytest.raises(ExperimentRefused, match=MISSING):
            client.enroll(signed(5), verified=True)

    def test_proof_does_not_replace_signature(self, client: Any):
        forged = signed(5)[:-64] + bytes(64)
        client.log.proofs["room_temp"] = proof(forged)
        with pytest.raises(ExperimentRefused, match="signature is missing or wrong"):
            client.enroll(forged)

    def test_older_version_costs_no_verification(self, client: Any, verified: list[bytes]):
        client.serials["room_temp"] = 6
        client.log.proofs["room_temp"] = proof(signed(5))
        with pytest.raises(ExperimentRefused, match="newer"):
            client.enroll(signed(5))
        assert verified == []

    def test_feeds_watchdog_before_each_signature(self, client: Any, verified: list[bytes]):
        at: list[int] = []
        client.log.feed = lambda: at.append(len(verified))
        client.log.proofs["room_temp"] = proof(signed(5))
        client.enroll(signed(5))
        assert at == [0, 1, 2, 3]
        assert len(verified) == 4

    def test_reporters_watchdog_is_fed(self, verified: list[bytes]):
        kept = start(None)
        reporter: Any = BaseReporter(kept._client, kept)
        at: list[int] = []
        reporter._feed = lambda: at.append(len(verified))
        assert receive(kept, ("room_temp/proof", proof(signed(5))), ("room_temp", signed(5))) == [None, None]
        assert at == [0, 1, 2, 3]

    def test_withdrawal_needs_no_proof(self, client: Any):
        client.log.proofs["room_temp"] = proof(signed(5))
        client.enroll(signed(5))
        client.withdraw("room_temp", withdrawn(6))
        assert client.status()["experiments"]["room_temp"]["state"] == "absent"


class TestMessages:
    @pytest.mark.parametrize("order", ["proof first", "experiment first"])
    def test_arrive_in_any_order_and_repeatedly(self, order: str, verified: list[bytes]):
        kept = start(None)
        messages = [("room_temp/proof", proof(signed(5))), ("room_temp", signed(5))]
        if order == "experiment first":
            messages.reverse()
            assert receive(kept, messages[0], messages[0], messages[1]) == [MISSING, MISSING, None]
        else:
            assert receive(kept, *messages) == [None, None]
        assert (leaf(kept), len(verified)) == (17, 4)
        for _ in range(3):
            assert set(receive(kept, *messages)) == {None}
        newer = proof(signed(5), size=2000)  # the tree has grown
        assert receive(kept, ("room_temp/proof", newer), *messages) == [None] * 3
        assert (leaf(kept), len(verified)) == (17, 4)

    def test_newer_version_waits_for_its_proof(self, verified: list[bytes]):
        kept = start(None)
        receive(kept, ("room_temp/proof", proof(signed(5))), ("room_temp", signed(5)))
        assert receive(kept, ("room_temp", signed(6, epsilon=2_000_000))) == [MISSING]
        assert (leaf(kept), line(kept)["epsilon"]) == (17, 1_000_000)
        assert line(kept)["reason"] == MISSING
        assert receive(kept, ("room_temp/proof", proof(signed(5), size=1001))) == [WRONG]  # an old proof
        assert receive(kept, ("room_temp/proof", b"\0" * 2000)) == [MALFORMED]
        count = len(verified)
        for _ in range(3):
            assert receive(kept, ("room_temp/proof", b"\0" * 2000)) == [None]
            assert receive(kept, ("room_temp", signed(6, epsilon=2_000_000))) == [MALFORMED]
        assert len(verified) == count
        assert leaf(kept) == 17
        good = proof(signed(6, epsilon=2_000_000), index=20)
        assert receive(kept, ("room_temp/proof", good)) == [None]
        assert (leaf(kept), line(kept)["epsilon"]) == (20, 2_000_000)
        assert line(kept)["reason"] is None

    def test_lost_proof_changes_nothing(self, folder: Path):
        kept = start(folder)
        receive(kept, ("room_temp/proof", proof(signed(5))), ("room_temp", signed(5)))
        assert receive(kept, ("room_temp/proof", b""), ("room_temp", signed(5))) == [None, None]
        assert leaf(kept) == 17
        assert leaf(start(folder)) == 17

    def test_proof_alone_does_not_change_reason(self):
        kept = start(None)
        assert receive(kept, ("room_temp", b"{}")) == ["v is missing"]
        kept.put_aside("door_open/proof", proof(signed(5)))
        assert kept.consider() == (None, None)
        assert line(kept)["reason"] == "v is missing"

    def test_withdrawal_and_return(self):
        kept = start(None)
        receive(kept, ("room_temp/proof", proof(signed(5))), ("room_temp", signed(5)))
        assert receive(kept, ("room_temp", withdrawn(6))) == [None]
        assert receive(kept, ("room_temp/proof", proof(signed(5), size=1002))) == [None]
        assert receive(kept, ("room_temp", signed(5))) == ["a newer version was published"]
        assert receive(kept, ("room_temp/proof", proof(signed(7))), ("room_temp", signed(7)))[-1] is None
        assert leaf(kept) == 17

    def test_repeated_proof_of_withdrawn_version_is_not_taken(self):
        kept = start(None)
        receive(kept, ("room_temp", signed(5)), ("room_temp", withdrawn(6)))
        assert receive(kept, ("room_temp/proof", proof(signed(5)))) == [None]
        assert leaf(kept) is None


class TestKept:
    def test_survives_restart_without_verification(self, folder: Path, verified: list[bytes]):
        receive(start(folder), ("room_temp/proof", proof(signed(5))), ("room_temp", signed(5)))
        assert len(verified) == 4
        kept = start(folder)
        assert (leaf(kept), kept._client.serials) == (17, {"room_temp": 5})
        receive(kept, ("room_temp", signed(5)))
        assert len(verified) == 4

    def test_month_later_takes_todays_version(self, folder: Path):
        receive(start(folder), ("room_temp/proof", proof(signed(5))), ("room_temp", signed(5)))
        kept = start(folder)
        today = signed(35, epsilon=2_000_000)
        receive(kept, ("room_temp", today), ("room_temp/proof", proof(today, 90_000, 100_000)))
        assert leaf(kept) == leaf(start(folder)) == 90_000
        with pytest.raises(ExperimentRefused, match="newer"):
            kept.take("room_temp", signed(5))

    @pytest.mark.parametrize(
        "log",
        [
            {**LOG, "origin": "example.org/other"},
            {**LOG, "keys": (LOG["keys"][0], LOG["keys"][2], LOG["keys"][1])},
            {**LOG, "keys": LOG["keys"][:2], "need": 1},
            {**LOG, "keys": (*LOG["keys"], "1" * 128)},
        ],
    )
    def test_other_log_needs_another_proof_and_keeps_serial(self, folder: Path, log: Any):
        receive(start(folder), ("room_temp/proof", proof(signed(5))), ("room_temp", signed(5)))
        kept = start(folder, log=log)
        assert (line(kept)["state"], kept._client.serials) == ("absent", {"room_temp": 5})
        assert receive(kept, ("room_temp", signed(5))) == [MISSING]
        assert leaf(start(folder)) == 17  # the file is still there

    def test_log_that_is_new_in_policy_needs_proof(self, folder: Path):
        start(folder, log=None).take("room_temp", signed(5))
        kept = start(folder)
        assert (line(kept)["state"], kept._client.serials) == ("absent", {"room_temp": 5})
        assert receive(kept, ("room_temp", signed(5)), ("room_temp/proof", proof(signed(5)))) == [
            MISSING,
            None,
        ]
        assert leaf(start(folder)) == 17

    def test_policy_without_log_takes_message_again(self, folder: Path):
        receive(start(folder), ("room_temp/proof", proof(signed(5))), ("room_temp", signed(5)))
        kept = start(folder, log=None)
        assert (line(kept)["state"], kept._client.serials) == ("refused", {"room_temp": 5})
        kept.take("room_temp", signed(5))
        assert line(start(folder, log=None))["state"] == "reporting"

    def test_withdrawal_survives_restart(self, folder: Path, verified: list[bytes]):
        kept = start(folder)
        receive(kept, ("room_temp/proof", proof(signed(5))), ("room_temp", signed(5)))
        receive(kept, ("room_temp", withdrawn(6)))
        count = len(verified)
        kept = start(folder)
        assert receive(kept, ("room_temp", withdrawn(6))) == [None]
        assert (line(kept)["state"], len(verified)) == ("absent", count)

    def test_any_damage_is_ignored(self, folder: Path):
        receive(start(folder), ("room_temp/proof", proof(signed(5))), ("room_temp", signed(5)))
        path = folder / "room_temp"
        content = path.read_bytes()
        for size in range(len(content)):
            path.write_bytes(content[:size])
            assert leaf(start(folder)) is None
        for at in range(len(content)):
            path.write_bytes(content[:at] + bytes((content[at] ^ 1,)) + content[at + 1 :])
            assert leaf(start(folder)) is None

    def test_full_flash_keeps_it_until_restart(self, folder: Path):
        folder.write_text("a file where the folder should be")
        kept = start(folder)
        receive(kept, ("room_temp/proof", proof(signed(5))), ("room_temp", signed(5)))
        assert leaf(kept) == 17
        assert kept.fault is not None


class TestOrders:
    def test_end_with_the_newest_version(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(ldp_p256, "verify", functools.cache(ldp_p256.verify))
        versions = {f"v{n}": ("room_temp", signed(n)) for n in (1, 2, 3)}
        proofs = {f"p{n}": ("room_temp/proof", proof(signed(n), index=n)) for n in (1, 2, 3)}
        messages = versions | proofs
        for order in log_cases.message_orders(1):
            kept = start(None)
            receive(kept, *(messages[message] for message in order))
            assert f"v{leaf(kept)}" == max(order), order


CUT_STEPS = """
import os, sys
sys.path[:0] = [{here!r}]
import test_log as t
from write_log import ACKNOWLEDGED
folder = {folder!r}
acknowledged = os.open(folder + "/" + ACKNOWLEDGED, os.O_WRONLY | os.O_CREAT)
kept = t.start(t.Path(folder), ask="each")
for number, (name, payload) in enumerate(t.CUT_MESSAGES, 1):
    kept.agree("room_temp") if name == "agree" else t.receive(kept, (name, payload))
    os.pwrite(acknowledged, str(number).encode(), 0)
"""
CUT_MESSAGES = [
    ("room_temp", signed(5)),
    ("room_temp/proof", proof(signed(5))),
    ("agree", b""),
    ("room_temp", signed(6, epsilon=2_000_000)),
    ("room_temp/proof", proof(signed(6, epsilon=2_000_000), 20)),
    ("agree", b""),
    ("room_temp", withdrawn(7)),
]
# The index in force, epsilon of the question that waits for consent, and lowest serial after each message.
CUT_STATES = [
    (None, None, 0),
    (None, None, 0),
    (None, 1_000_000, 0),
    (17, None, 5),
    (17, None, 5),
    (17, 2_000_000, 5),
    (20, None, 6),
    (None, None, 7),
]


class TestPowerCuts:
    def test_keep_old_or_new_state_at_every_operation(self, tmp_path: Path):
        folder = tmp_path / "experiments"
        folder.mkdir()
        code = CUT_STEPS.format(here=str(Path(__file__).parent), folder=str(folder))
        recording = record(folder, "-c", code)
        seen: set[int] = set()
        cuts = tmp_path / "cut"
        for cut in power_cuts(recording, np.random.default_rng(5), draws=2, more=1.0):
            shutil.rmtree(cuts, ignore_errors=True)
            cuts.mkdir()
            for name, data in cut.files.items():
                (cuts / name).write_bytes(data)
            kept = start(cuts, ask="each")
            waiting = [json.loads(data.partition(b"\0")[0])["epsilon"] for data in kept.asking.values()]
            state = (leaf(kept), waiting[0] if waiting else None, kept._client.serials.get("room_temp", 0))
            at = int(cut.acknowledged or 0)
            allowed = CUT_STATES[at : at + 2]
            # A question is removed from flash before its experiment is stored, and a consent before the
            # experiment is withdrawn, so that it may be asked again.
            allowed += [(index, None, serial) for index, _, serial in allowed]
            allowed += [(None, {17: 1_000_000, 20: 2_000_000}.get(index or 0), n) for index, _, n in allowed]
            assert state in allowed, str(cut)
            seen.add(at)
            receive(kept, *CUT_MESSAGES[-1:])
            assert (leaf(kept), kept.asking) == (None, {})
        assert seen == set(range(len(CUT_STATES)))


class TestAskEach:
    def test_asks_only_what_the_log_has(self, folder: Path, verified: list[bytes]):
        kept = start(folder, ask="each")
        assert receive(kept, ("room_temp", signed(5))) == [MISSING]
        assert kept.asking == {}
        forged = signed(5)[:-64] + bytes(64)
        reasons = receive(kept, ("room_temp/proof", proof(forged)), ("room_temp", forged))
        assert reasons[-1] == "its signature is missing or wrong"
        assert kept.asking == {}
        reasons = receive(kept, ("room_temp", signed(5)), ("room_temp/proof", proof(signed(5))))
        assert reasons[-1] == "nobody has consented to it: call agree(name)"
        assert kept.asking == {"room_temp": signed(5)}
        count = len(verified)
        receive(kept, ("room_temp/proof", proof(signed(5), size=2000)), ("room_temp", signed(5)))
        assert len(verified) == count

    @pytest.mark.parametrize("restarts", [False, True])
    def test_consent_needs_no_proof_again(self, folder: Path, restarts: bool):
        kept = start(folder, ask="each")
        receive(kept, ("room_temp", signed(5)), ("room_temp/proof", proof(signed(5))))
        if restarts:
            kept = start(folder, ask="each")
        assert kept.asking == {"room_temp": signed(5)}
        kept.agree("room_temp")
        assert leaf(kept) == leaf(start(folder, ask="each")) == 17

    def test_waits_beside_version_in_force(self, folder: Path):
        kept = start(folder, ask="each")
        receive(kept, ("room_temp", signed(5)), ("room_temp/proof", proof(signed(5))))
        kept.agree("room_temp")
        other = signed(6, epsilon=2_000_000)
        receive(kept, ("room_temp", other), ("room_temp/proof", proof(other, 20)))
        for experiments in (kept, start(folder, ask="each")):
            assert (leaf(experiments), experiments.asking) == (17, {"room_temp": other})
        kept = start(folder, ask="each")
        kept.agree("room_temp")
        assert leaf(kept) == leaf(start(folder, ask="each")) == 20

    def test_consent_to_old_version_does_not_end_wait_of_next(self, folder: Path):
        kept = start(folder, ask="each")
        other = signed(6, epsilon=2_000_000)
        receive(kept, ("room_temp/proof", proof(signed(5))), ("room_temp", signed(5)), ("room_temp", other))
        kept.agree("room_temp")
        receive(kept, ("room_temp/proof", proof(other, 20)))
        assert (leaf(kept), kept.asking) == (17, {"room_temp": other})

    def test_question_of_another_log_is_not_asked(self, folder: Path):
        kept = start(folder, ask="each")
        receive(kept, ("room_temp", signed(5)), ("room_temp/proof", proof(signed(5))))
        assert start(folder, ask="each", log={**LOG, "keys": LOG["keys"][:2], "need": 1}).asking == {}
        assert start(folder, ask="each").asking == {"room_temp": signed(5)}
        (folder / "room_temp.ask").unlink()
        kept = start(folder, ask="each", log=None)
        with pytest.raises(ExperimentRefused):
            kept.take("room_temp", signed(5))
        assert start(folder, ask="each").asking == {}

    def test_opt_out_ends_consent(self, folder: Path):
        kept = start(folder, ask="each")
        receive(kept, ("room_temp", signed(5)), ("room_temp/proof", proof(signed(5))))
        kept.agree("room_temp")
        kept._client.consent = False
        kept._client.consent = True
        assert leaf(kept) is None
        assert receive(kept, ("room_temp", signed(5))) == ["nobody has consented to it: call agree(name)"]
        kept.agree("room_temp")
        assert leaf(kept) == 17


class TestWords:
    WORDS = f"asked of every device alike, checked by {LOG['keys'][1][:16]} and {LOG['keys'][2][:16]}"

    def test_name_witnesses_by_their_keys(self):
        assert start(None)._client.log.words() == self.WORDS
        one = {**LOG, "keys": LOG["keys"][:2], "need": 1}
        assert start(None, log=one)._client.log.words() == self.WORDS.partition(" and ")[0]
        some = {**LOG, "keys": (*LOG["keys"], "1" * 128)}
        words = self.WORDS.replace("by ", "by 2 of ").replace(" and ", ", ") + f" and {'1' * 16}"
        assert start(None, log=some)._client.log.words() == words

    def test_in_preview_status_and_question(self, capsys: pytest.CaptureFixture[str]):
        kept = start(None)
        receive(kept, ("room_temp/proof", proof(signed(5))), ("room_temp", signed(5)))
        text = preview.preview(kept._client, "room_temp", True)
        assert f"\nA{self.WORDS[1:]}; entry 17 of {ORIGIN}.\n" in text + "\n"
        reporter = BaseReporter(kept._client, kept)
        assert "; room_temp is entry 17 of the log" in reporter_status.status(reporter)
        kept._client.consent = False
        assert consent.attend(kept._client, None, None, bytes) == (
            "silent, as someone said no; with a yes it answers room_temp, door_open; each question is "
            f"{self.WORDS}: yes() says it"
        )
        assert capsys.readouterr().out == ""


def check_proofs() -> Any:
    """Return firmware_tests/check_proofs.py for this Python."""
    return load(ROOT / "firmware_tests" / "check_proofs.py")


class TestRandomProofs:
    """2,000 with LONG=1, otherwise 100; an equal of each is accepted, and five mutants are refused.

    MicroPython verifies few signatures a second: it checks the first 50 with their equals and 100 mutants, or
    all with LONG=1.
    """

    ANSWERS = 2 * log_cases.COUNT, log_cases.MUTANTS * log_cases.COUNT, []
    MOST, FIRST = (None, ANSWERS) if log_cases.COUNT > 100 else (200, (100, 100, []))

    @pytest.fixture(scope="class")
    @classmethod
    def cases(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        path = tmp_path_factory.mktemp("proofs") / "proofs.json"
        log_cases.write(path, 3)
        return path

    def runtimes(self) -> list[Any]:
        return [runtime for runtime in _find(True)[0] if "fast" in runtime.features]

    def test_on_micropython(self, cases: Path, tmp_path: Path):
        runtimes = self.runtimes()
        if not runtimes:
            pytest.skip("no MicroPython")
        for runtime in runtimes:
            folder = tmp_path / runtime.name
            folder.mkdir()
            for name in ("ldp_client", "ldp_log", "ldp_p256"):
                shutil.copy(ROOT / "device" / f"{name}.py", folder)
            for name in ("check_proofs", "check_vectors"):
                shutil.copy(ROOT / "firmware_tests" / f"{name}.py", folder)
            shutil.copy(cases, folder / "proofs.json")
            (folder / "test.py").write_text(
                f"import check_proofs\nprint(check_proofs.run(open('proofs.json'), {self.MOST}))\n"
            )
            result = subprocess.run(
                runtime.command(folder, "test.py"), cwd=folder, capture_output=True, text=True, check=False
            )
            assert result.stdout.strip() == str(self.FIRST), runtime.name + result.stderr

    def test_on_cpython(self, cases: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.syspath_prepend(str(ROOT / "firmware_tests"))
        monkeypatch.syspath_prepend(str(ROOT / "device"))
        checker = check_proofs()
        with cases.open() as lines:
            assert checker.run(lines) == self.ANSWERS

    def test_checker_reports_wrong_verdicts(self, cases: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.syspath_prepend(str(ROOT / "firmware_tests"))
        monkeypatch.syspath_prepend(str(ROOT / "device"))
        lines = cases.read_text().splitlines()
        first = next(at for at, text in enumerate(lines) if text.startswith('{"log"'))
        mutant = next(at for at, text in enumerate(lines) if '"refused": ""' in text)
        for at, change in ((first, {"index": -1}), (first, {"refused": ""}), (mutant, {"refused": None})):
            wrong = json.dumps(json.loads(lines[at].rstrip(",")) | change) + ","
            assert len(check_proofs().run([*lines[:at], wrong], at - first + 1)[2]) == 1
