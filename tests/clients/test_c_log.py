"""The C client with a log in its policy: proofs, and experiments and proofs that arrive in any order."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import shutil
import struct
import subprocess
from ctypes import c_size_t, c_uint32
from pathlib import Path
from typing import Any

import log_cases
import pytest
import reference_board as ref
import reference_log
from boards import SIGNING
from c_client import CODES, CBoard, Proof, Source, library
from c_core import CORE, STRICT, WITH_LOG, compile_c, needs_gcc
from c_reporter import TOPIC, Board
from enumeration import POLICY, MemoryStorage
from experiments import experiment_json

from hushmote.server.wire import keys

pytestmark = needs_gcc

PRIVATE = [5**80 + i for i in range(4)]
LOG = {
    "origin": "example.org/questions",
    "keys": tuple(ref.public_key(key).hex() for key in PRIVATE[:3]),
    "need": 2,
}
LOGGED = POLICY | {"log": LOG}
ANNOUNCE = keys.public_key_bytes(SIGNING)
PAYLOAD = experiment_json(budget={"rule": "sum", "cap": 40_000_000})
MISSING, MALFORMED, WRONG, FEW = (
    CODES[f"REFUSED_{word}"] for word in ("NO_PROOF", "PROOF", "LOG", "WITNESSES")
)


@functools.cache
def version(serial: int, name: str = "e") -> bytes:
    """Return a signed version of an experiment."""
    payload = experiment_json(name=name, budget={"rule": "sum", "cap": 40_000_000})
    return keys.sign_experiment(SIGNING, TOPIC + name, payload, serial)


@functools.cache
def proof(
    serial: int, index: int = 5, size: int = 9, name: str = "e", signers: tuple[int, ...] = (0, 1, 2)
) -> bytes:
    """Return a proof of a version."""
    arguments = (PRIVATE, signers, TOPIC + name, version(serial, name), index, size)
    return reference_log.proof_of(LOG["origin"], *arguments)


def logged_board(previous: Board | None = None, **settings: Any) -> Board:
    """Return a board with a log in its policy, with the storage of the previous one if there is one."""
    slots, kept = (None, None) if previous is None else (previous.storage, previous.kept)
    return Board(slots, kept, **{"policy": LOGGED, "announce_key": ANNOUNCE} | settings)


class TestProofs:
    @pytest.mark.slow
    def test_random_ones_and_mutants_are_answered_like_ldp_log(self):
        c = library()
        reasons = {code: c.hushmote_text(code).decode() for code in (MISSING, MALFORMED, WRONG, FEW)}

        def answer(case: log_cases.Case) -> int | str:
            policy = LOGGED | {"log": case.log}
            board = CBoard(
                policy, MemoryStorage(), announce_key=ANNOUNCE, fleet="home", entropy=Source(1), begin=False
            )
            leaf, payload = c_uint32(), case.payload
            # An exact copy, so that the sanitizer detects reads past its end.
            data = ctypes.create_string_buffer(case.proof, len(case.proof)) if case.proof else None
            sizes = c_size_t(len(payload)), c_size_t(len(case.proof))
            assert c.hm_settings(board.config_pointer) == 0
            code = (
                c.test_proof(
                    board.config_pointer,
                    case.name.encode(),
                    payload,
                    sizes[0],
                    data,
                    sizes[1],
                    ctypes.byref(leaf),
                )
                if case.proof
                else MISSING
            )
            return reasons[code] if code else leaf.value

        log_cases.check(lambda cases: [answer(case) for case in cases], 61)


class TestPolicy:
    @pytest.mark.parametrize(
        "change",
        [
            {"origin": ""},
            {"origin": "example.org/a b"},
            {"origin": "a+b"},
            {"origin": "a\n"},
            {"need": 0},
            {"need": 3},
            {"need": 1},
            {"keys": (*LOG["keys"], "1" * 128, "2" * 128)},
            {"keys": LOG["keys"][:1]},
            {"keys": (*LOG["keys"], LOG["keys"][1])},
            {"keys": (*LOG["keys"], LOG["keys"][1][:8] + "1" * 120)},
            {"keys": (LOG["keys"][0], LOG["keys"][0], LOG["keys"][2])},
            {"keys": (LOG["keys"][0], LOG["keys"][1][:-1], LOG["keys"][2])},
            {"keys": (LOG["keys"][0], LOG["keys"][1] + "0", LOG["keys"][2])},
            {"keys": (LOG["keys"][0], LOG["keys"][0].upper(), LOG["keys"][2])},
            {"keys": (LOG["keys"][0], "g" + LOG["keys"][1][1:], LOG["keys"][2])},
            {"keys": tuple(ref.public_key(key).hex() for key in range(1, 10))},
        ],
        ids=str,
    )
    def test_with_wrong_log_is_refused(self, change: dict[str, Any]):
        policy = POLICY | {"log": LOG | change}
        board = CBoard(policy, MemoryStorage(), announce_key=ANNOUNCE, fleet="home", entropy=Source(1))
        assert board.begun == CODES["BAD_SETTINGS"]

    def test_keys_may_have_digits_in_either_case(self):
        keys = tuple(key.upper() for key in LOG["keys"])
        board = logged_board(policy=POLICY | {"log": LOG | {"keys": keys}})
        board.proof("e", proof(1))
        board.message("e", version(1))
        assert board.report() > 0

    def test_with_log_requires_an_announce_key(self):
        board = CBoard(LOGGED, MemoryStorage(), fleet="home", entropy=Source(1))
        assert board.begun == CODES["BAD_SETTINGS"]

    def test_with_log_is_refused_if_logs_are_left_out(self, tmp_path: Path):
        sources = [path.stem for path in CORE.glob("*.c") if path.stem not in ("check", "fuzz")]
        without = ctypes.CDLL(str(compile_c(tmp_path / "without.so", sources, "-shared", "-fPIC")))
        board = CBoard(LOGGED, MemoryStorage(), announce_key=ANNOUNCE, fleet="home", entropy=Source(1))
        assert board.begun == 0
        assert without.hm_settings(board.config_pointer) == CODES["BAD_SETTINGS"]

    def test_requires_entries_exactly_with_a_log(self):
        board = logged_board()
        board.port.entries = None
        assert board.begin() == CODES["BAD_SETTINGS"]
        board = Board(announce_key=ANNOUNCE)
        board.port.entries = ctypes.addressof(board.topics)
        assert board.begin() == CODES["BAD_SETTINGS"]


class TestEnroll:
    def begun(self) -> CBoard:
        storage = MemoryStorage()
        CBoard(
            LOGGED, storage, announce_key=ANNOUNCE, fleet="home", entropy=Source(1), begin=False
        ).provision(consent=2)
        return CBoard(LOGGED, storage, announce_key=ANNOUNCE, fleet="home", entropy=Source(2))

    def enroll(self, board: CBoard, payload: bytes, data: bytes) -> int:
        self.proof = Proof(data, len(data))
        size = c_size_t(len(payload))
        return board.c.hushmote_enroll_logged(board.client, payload, size, ctypes.byref(self.proof))

    def test_refuses_every_experiment_without_a_proof(self):
        board = self.begun()
        for call in (board.c.hushmote_enroll, board.c.hushmote_enroll_kept):
            assert call(board.client, version(1), len(version(1))) == MISSING
        assert self.enroll(board, version(1), b"") == MISSING
        assert board.status()["experiments"]["e"]["refused"] == "REFUSED_NO_PROOF"
        assert self.enroll(board, version(1), proof(1)) == 0
        assert self.proof.leaf == 5
        assert board.report("e", True)

    def test_refused_proof_keeps_version_and_serial(self):
        board = self.begun()
        assert self.enroll(board, version(1), proof(1)) == 0
        for bad, code in (
            (proof(1), WRONG),
            (proof(9, signers=(0, 1)), FEW),
            (proof(9)[:-1], MALFORMED),
            (bytes(1_700), MALFORMED),
        ):
            assert self.enroll(board, version(9), bad) == code
            assert board.serial("e") == 1
        assert board.report("e", True)
        assert self.enroll(board, version(2), proof(2)) == 0

    def test_older_version_is_refused_despite_its_proof(self):
        board = self.begun()
        assert self.enroll(board, version(3), proof(3)) == 0
        assert self.enroll(board, version(2), proof(2)) == CODES["REFUSED_SERIAL"]

    def test_feeds_the_watchdog_before_each_signature(self):
        board = self.begun()
        fed: list[int] = []
        callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: fed.append(1))
        board.config.feed = ctypes.cast(callback, ctypes.c_void_p)
        assert self.enroll(board, version(1), proof(1)) == 0
        assert len(fed) == 3

    @pytest.mark.parametrize(("count", "need"), [(2, 1), (3, 2), (4, 2)])
    def test_preview_names_the_witnesses(self, count: int, need: int):
        board = self.begun()
        witnesses = [key[:16] for key in (*LOG["keys"], "5" * 128)[1:count]]
        text = f"{', '.join(witnesses[:-1])}{' and ' * (count > 2)}{witnesses[-1]}"
        text = f"{need} of {text}" if need < count - 1 else text
        assert self.enroll(board, version(1), proof(1)) == 0
        log = board.rules.log.contents
        log.key_count, log.need = count, need
        log.keys = (ctypes.c_char_p * 4)(*(key.encode() for key in (*LOG["keys"], "5" * 128)))
        assert board.preview("e", True).endswith(f"\nAsked of every device alike, checked by {text}.")

    def test_withdrawal_needs_no_proof(self):
        board = self.begun()
        assert self.enroll(board, version(1), proof(1)) == 0
        board.withdraw("e", keys.sign_experiment(SIGNING, TOPIC + "e", b"", 2))
        assert board.report("e", True) is None


class TestMessages:
    @pytest.fixture
    def remembers_signatures(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Verify each signature only once in a test, because that is slow with the sanitizers."""
        verify, known = Board._verify, dict[tuple[bytes, ...], bool]()

        def remember(board: Board, context: Any, *arguments: int) -> bool:
            case = tuple(map(ctypes.string_at, arguments, (64, 32, 64)))
            if case not in known:
                known[case] = verify(board, context, *arguments)
            return known[case]

        monkeypatch.setattr(Board, "_verify", remember)

    def test_topics_of_proofs_are_subscribed_to(self):
        board = logged_board()
        topics = [what[1] for what in board.connected() if what[0] == "subscribe"]
        root = "hushmote/v1/home"
        assert topics == [f"{root}/{kind}/{name}" for name in "efg" for kind in ("experiment", "proof")]

    @pytest.mark.parametrize("order", ["ep", "pe", "eep", "ppe", "qep", "qpe", "eqp"])
    def test_may_arrive_in_any_order(self, order: str):
        """Try orders of an experiment, its proof, and a proof q of an older version."""
        board = logged_board()
        board.connected()
        for letter in order:
            assert board.report() == 0
            if letter == "e":
                board.message("e", version(2))
            else:
                board.proof("e", proof(2) if letter == "p" else proof(1))
        assert board.report() > 0
        assert board.leaf() == 5

    @pytest.mark.usefixtures("remembers_signatures")
    @pytest.mark.parametrize("reconnects", [False, True])
    def test_in_any_order_end_with_the_newest_version(self, reconnects: bool):
        for order in log_cases.message_orders(2):
            board = logged_board()
            board.connected()
            for at, message in enumerate(order):
                if reconnects and at % 3 == 2:
                    board.lost()
                    board.connected()
                number = int(message[1])
                if message[0] == "v":
                    board.message("e", version(number))
                else:
                    board.proof("e", proof(number, index=number))
            assert f"v{board.leaf()}" == max(order), order

    def test_newer_proof_may_precede_the_newer_version(self):
        board = logged_board()
        board.connected()
        board.message("e", version(1))
        board.proof("e", proof(2, index=6))
        assert board.report() == 0
        board.message("e", version(2))
        assert board.report() > 0
        board.message("e", version(3))
        assert board.report() > 0  # of version 2
        board.proof("e", proof(3, index=8))
        assert board.leaf() == 8

    @pytest.mark.parametrize(("ask", "code"), [("once", 0), ("each", CODES["REFUSED_UNASKED"])])
    def test_with_list_as_every_is_refused(self, ask: str, code: int):
        board = logged_board(policy=LOGGED | {"ask": ask, "groups": ("firmware",)})
        for every, expected in (
            ([1, 2**24], CODES["REFUSED_EVERY"]),
            ([2, 2], CODES["REFUSED_EVERY"]),
            (2, code),
        ):
            assert board.verified == 0
            fields = {"group": "firmware", "groups": ["2.4.0"], "every": every}
            payload = keys.sign_experiment(SIGNING, TOPIC + "e", experiment_json(**fields), 1)
            origin = LOG["origin"]
            board.proof("e", reference_log.proof_of(origin, PRIVATE, (0, 1, 2), TOPIC + "e", payload, 5, 9))
            assert board.take("e", payload) == expected

    def test_repeated_ones_cost_no_signature(self):
        board = logged_board()
        board.connected()
        for _ in range(3):
            board.message("e", version(1))
        assert board.verified == 0  # until there is a proof
        few, wrong = proof(1, signers=(0, 1)), proof(1)[:-1] + bytes((proof(1)[-1] ^ 1,))
        for data, count in ((few, 3), (wrong, 3 + 4), (proof(1), 3 + 4 + 4)):
            for _ in range(3):
                board.proof("e", data)
            for _ in range(3):
                board.message("e", version(1))
                board.proof("e", data)
            assert board.verified == count

    def test_refusals_are_named_until_a_good_proof_comes(self):
        board = logged_board()
        board.connected()
        board.message("e", version(1))
        for bad, code in (
            (b"", MISSING),
            (b"x", MALFORMED),
            (bytes(5_000), MALFORMED),
            (proof(1) + bytes(65 * 30), MALFORMED),
            (proof(1, signers=(0, 2)), FEW),
            (proof(2), WRONG),
            (b"", MISSING),
        ):
            board.proof("e", bad)
            assert board.take("e", version(1)) == code
        assert board.board.status()["experiments"]["e"]["refused"] == "REFUSED_NO_PROOF"
        board.proof("e", proof(1))
        assert board.report() > 0

    def test_of_names_do_not_mix(self):
        board = logged_board()
        board.connected()
        board.message("e", version(1))
        board.message("f", version(1, "f"))
        board.proof("f", proof(1))
        board.proof("e", proof(1, name="f"))
        assert (board.report("e"), board.report("f")) == (0, 0)
        board.proof("f", proof(1, name="f"))
        assert board.report("e") == 0
        assert board.report("f") > 0

    def test_forbidden_topic_of_the_proof_is_the_reason(self):
        board = logged_board()
        board.connected()
        broker = CODES["REFUSED_BROKER"]
        experiment = board.subscriptions["e"] - 1  # the proof's topic is the next one
        board.c.hushmote_reporter_subscribed(board.reporter, ctypes.c_long(experiment), 0)
        board.subscribed("e", 128)
        assert board.tick()[-1] == ("status", "online refused:e")
        assert board.take("e", version(1)) == broker
        board.lost()
        board.connected()
        board.subscribed("e", 0)
        board.message("e", version(2))
        board.proof("e", proof(2))
        assert board.report() > 0

    def test_refused_while_forbidden_needs_only_the_proof(self):
        board = logged_board()
        board.connected()
        board.subscribed("e", 128)
        board.message("e", version(1))
        board.lost()
        board.connected()
        board.subscribed("e", 0)
        board.message("e", version(1))
        board.proof("e", proof(1))
        assert board.report() > 0

    def test_withdrawal_ends_what_waits(self):
        board = logged_board()
        board.connected()
        board.message("e", version(1))
        board.message("e", keys.sign_experiment(SIGNING, TOPIC + "e", b"", 2))
        board.proof("e", proof(1))
        assert board.report() == 0

    def test_status_names_what_waits(self):
        board = logged_board()
        board.connected()
        for send, payload, status in (
            (board.message, version(1), "online refused:e"),
            (board.proof, proof(1), "online"),
            (board.message, version(2), "online refused:e"),
            (board.message, version(1), "online"),
        ):
            send("e", payload)
            assert board.tick() == [("status", status)]
        board.proof("e", proof(2))
        assert board.leaf() == 5
        assert board.board.serial("e") == 1


class TestKept:
    def kept_board(self) -> Board:
        board = logged_board()
        board.proof("e", proof(1))
        assert board.take("e", version(1)) == 0
        return board

    def test_needs_no_proof_after_restart(self):
        board = logged_board(self.kept_board())
        assert board.report() > 0
        assert (board.verified, board.leaf()) == (0, 5)
        board.connected()
        board.message("e", version(1))  # without its proof
        assert board.report() > 0
        assert board.tick()[-1][0] == "report"

    def test_without_room_needs_no_other_proof_once_there_is_some(self):
        board = logged_board()
        board.connected()
        board.proof("e", proof(1))
        board.full = True
        board.message("e", version(1))
        assert board.report() == 0
        board.full = False
        board.message("e", version(1))
        assert board.report() > 0

    def test_file_has_index_and_identity_of_the_log(self):
        stored = self.kept_board().kept["e"]
        identity = f"{LOG['origin']} {' '.join(LOG['keys'])} 2".encode()
        tail = struct.pack(">I", 5) + hashlib.sha256(identity).digest()[:8]
        assert stored[:-4] == struct.pack(">I", 1) + version(1) + tail

    @pytest.mark.parametrize(
        "change",
        [{"keys": LOG["keys"][:2], "need": 1}, {"origin": "example.org/other"}, {"keys": LOG["keys"][::-1]}],
        ids=str,
    )
    def test_by_another_log_needs_a_proof_but_keeps_its_serial(self, change: dict[str, Any]):
        board = logged_board(self.kept_board(), policy=POLICY | {"log": LOG | change})
        assert board.report() == 0
        assert board.board.serial("e") == 1

    def test_without_a_log_needs_a_proof_once_there_is_one(self):
        board = Board(announce_key=ANNOUNCE)
        assert board.take("e", version(4)) == 0
        board = logged_board(board)
        assert board.report() == 0
        board.proof("e", proof(3))
        assert board.take("e", version(3)) == CODES["REFUSED_SERIAL"]
        board.proof("e", proof(4))
        assert board.take("e", version(4)) == 0

    def test_with_a_log_is_not_in_force_without_one(self):
        board = Board(self.kept_board().storage, self.kept_board().kept, announce_key=ANNOUNCE)
        assert board.report() == 0
        assert board.take("e", version(1)) == 0

    def test_board_that_was_off_takes_todays_version(self):
        board = logged_board(self.kept_board())
        board.connected()
        board.message("e", version(30))
        board.proof("e", proof(30, index=2**20, size=2**21 + 5))
        assert board.leaf() == 2**20
        assert board.report() > 0


class TestAskingEach:
    POLICY = LOGGED | {"ask": "each"}
    UNASKED = CODES["REFUSED_UNASKED"]

    def test_opt_in_to_old_version_does_not_end_wait_of_next(self):
        board = logged_board(policy=self.POLICY)
        board.proof("e", proof(1))
        assert board.take("e", version(1)) == self.UNASKED
        board.message("e", version(2))
        assert board.agree("e", version(1)) == 0
        board.proof("e", proof(2, index=6))
        assert (board.leaf(), board.board.serial("e")) == (6, 2)

    def test_asks_only_what_the_log_has(self):
        board = logged_board(policy=self.POLICY)
        assert board.take("e", version(1)) == MISSING
        assert board.asking() == {}
        board.proof("e", proof(2))
        assert board.asking() == {}
        board.proof("e", proof(1))
        assert board.asking() == {"e": version(1)}
        assert board.agree("e", version(1)) == 0
        assert board.report() > 0
        # An opt-in to the question holds for its next version, after a restart as well.
        board = logged_board(board, policy=self.POLICY)
        assert board.report() > 0
        assert board.take("e", version(2)) == MISSING
        board.proof("e", proof(2))
        assert board.take("e", version(2)) == 0
        assert board.leaf() == 5


class TestSize:
    MAIN = """
int main(void) {
    struct hushmote_config config = {0};
    config.policy = &policy;
    return hushmote_provision(&config, false, HUSHMOTE_NO);
}
"""
    FLAGS = ("-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections", "-Wno-missing-field-initializers")

    def test_check_fits_in_900_bytes_on_a_small_chip(self, tmp_path: Path):
        if shutil.which("arm-none-eabi-gcc") is None:
            pytest.skip("apt-get install gcc-arm-none-eabi libnewlib-arm-none-eabi")
        out = tmp_path / "log.o"
        chip = ("-mcpu=cortex-m0plus", "-mthumb", "-Os", "-ffunction-sections", "-fdata-sections")
        strict = [flag for flag in STRICT if flag not in ("-g", "-O2")]
        command = ["arm-none-eabi-gcc", *strict, *chip, WITH_LOG, "-c", CORE / "log.c", "-o", out]
        subprocess.run(command, check=True)
        done = subprocess.run(["arm-none-eabi-size", out], capture_output=True, text=True, check=True)
        text, data = (int(size) for size in done.stdout.splitlines()[1].split()[:2])
        assert text + data <= 900

    def test_check_is_linked_only_with_a_log_in_the_policy(self, tmp_path: Path):
        policies = {
            "with": 'HUSHMOTE_LOG(questions, "o", 1, "k", "w");'
            'HUSHMOTE_POLICY_WITH_LOG(policy, questions, 8000000, 0, 1000000, HUSHMOTE_SUM, 0, "e");',
            "without": 'HUSHMOTE_POLICY(policy, 8000000, 0, 1000000, HUSHMOTE_SUM, 0, "e");',
        }
        sources = [path.stem for path in CORE.glob("*.c") if path.stem not in ("check", "fuzz")]
        for name, policy in policies.items():
            program = tmp_path / f"{name}.c"
            program.write_text(f'#include "hushmote.h"\n{policy}\n{self.MAIN}')
            built = compile_c(tmp_path / name, [program, *sources], WITH_LOG, *self.FLAGS)
            done = subprocess.run(["nm", built], capture_output=True, text=True, check=True)
            assert ("hushmote_log_check" in done.stdout) == (name == "with")
