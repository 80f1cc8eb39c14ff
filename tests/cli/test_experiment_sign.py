"""An experiment signed on one machine and published by an aggregator on another that cannot sign."""

import functools
import json
import shutil
import time
from pathlib import Path

import pytest
from boards import MemoryStorage
from command_line import hushmote
from enumeration import POLICY
from refusals import Refusal, fails, refusals

from hushmote.device import ldp_client
from hushmote.fleet.provisioning import fleet_folder, master_key
from hushmote.fleet.provisioning.fleet_spec import FleetSpec
from hushmote.server.experiments.reading import DefinitionError
from hushmote.server.experiments.signed_file import load_signed
from hushmote.server.store.store import Store
from hushmote.server.wire import keys, topics

ROOM_TEMP = Path(__file__).parents[2] / "examples" / "room_temp.toml"
TOPIC = topics.experiment_topic("home", "room_temp")
STORE = "sqlite:///hushmote.sqlite"


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOM_TEMP, "room_temp.toml")
    return functools.partial(hushmote, cwd=tmp_path)


@pytest.fixture
def folder(run):
    return fleet_folder.make(Path("fl"), FleetSpec("home", ("localhost",)), write_master=True)


def board(announce_key):
    storage = MemoryStorage()
    ldp_client.provision(storage, consent=True)
    policy = POLICY | {"experiments": ("room_temp",), "epsilon": 4_000_000}
    return ldp_client.Client(policy, storage, "k3f9", bytes(32), announce_key, "home")


class TestSign:
    def test_add_and_boards_accept_signed_file(self, run, folder):
        text = run("experiment", "sign", "room_temp.toml", "--folder", "fl")
        assert text.startswith("room_temp.signed.json: room_temp for fleet home until ")
        assert text.count("\n") == 1
        counting = master_key.load_keys(folder.master_file())
        assert counting is not None
        assert counting.signing is None
        run("experiment", "add", "room_temp.signed.json", "--keys")
        with Store(STORE) as store:
            (version,) = store.experiments()
        assert version.purpose
        assert version.signatures is not None
        both = keys.signed_messages(counting.announce_key, TOPIC, version.payload, version.signatures)
        assert both is not None
        device = board(counting.announce_key)
        device.enroll(both[0])
        device.withdraw("room_temp", both[1])
        with pytest.raises(ldp_client.ExperimentRefused, match="newer"):
            device.enroll(both[0])

    def test_needs_no_store_and_writes_no_secret(self, run, folder):
        run("experiment", "sign", "room_temp.toml", "--folder", "fl", "--output", "signed.json")
        assert not Path("hushmote.sqlite").exists()
        signing_key = master_key.load_signing_key(folder.signing_file())
        assert signing_key.hex() not in Path("signed.json").read_text()

    def test_reads_key_from_file_or_older_combined_file(self, run, folder):
        both = master_key.load_keys(folder.master_file(), signing=folder.signing_file())
        assert both is not None
        old = Path("old.key")
        old.touch(0o600)
        old.write_text(master_key.to_text(both))
        for key in ("fl/authority/signing.key", "old.key"):
            run("experiment", "sign", "room_temp.toml", "--fleet", "home", "--signing-key", key)
            assert load_signed(Path("room_temp.signed.json")).announce_key == both.announce_key

    @refusals(
        ("", "there is no signing key: give its file with --signing-key"),
        ("--signing-key fl/aggregator/master.key", "has no signing key: give the file that has"),
        ("--folder fl --fleet shed", "is the folder of fleet home; omit --fleet"),
        ("--folder fl --after 4294967295", "leaves no serial; the highest is 4294967295"),
        command="experiment sign room_temp.toml",
    )
    def test_refusal_is_one_line(self, refusal: Refusal, folder, tmp_path):
        refusal.check(tmp_path)

    def test_after_sets_an_acceptable_serial(self, run, folder):
        sign = ("experiment", "sign", "room_temp.toml", "--folder", "fl")
        run(*sign, "--after", str(int(time.time()) + 500))
        run("experiment", "add", "room_temp.signed.json", "--keys")
        run(*sign)
        message = run("experiment", "add", "room_temp.signed.json", expect=1)
        assert message.count("\n") == 1
        run(*sign, "--after", message.split("--after ")[1].split()[0])
        run("experiment", "add", "room_temp.signed.json")


class TestAdd:
    @pytest.fixture
    def signed(self, run, folder):
        run("experiment", "sign", "room_temp.toml", "--folder", "fl")
        return Path("room_temp.signed.json")

    def test_rejects_every_altered_field(self, signed):
        signed_fields = json.loads(signed.read_text())
        for name, value in signed_fields["experiment"].items():
            changed = value + 1 if isinstance(value, int) else {} if isinstance(value, dict) else value + "0"
            document = signed_fields | {"experiment": signed_fields["experiment"] | {name: changed}}
            signed.write_text(json.dumps(document))
            with fails(r"was altered after it was|is damaged or not a signed experiment", DefinitionError):
                load_signed(signed)

    def test_rejects_later_expiry_and_other_purpose(self, run, signed):
        text = signed.read_text()
        for old, new in (("2027", "2037"), ('"owner": "', '"owner": "not ')):
            assert old in text
            signed.write_text(text.replace(old, new))
            message = run("experiment", "add", str(signed), "--keys", expect=1)
            assert message.endswith("was altered after it was signed: sign the experiment again\n")

    @refusals(
        *(
            (
                "experiment add a.json --keys",
                "a.json is damaged or not a signed experiment",
                {"a.json": content},
            )
            for content in ("", "{}", "[]", "null", '{"experiment": 1, "signature": ""}', b"\xff")
        )
    )
    def test_rejects_malformed_file(self, refusal: Refusal, tmp_path):
        refusal.check(tmp_path)

    @refusals(
        ("--fleet shed", "is signed for fleet home; omit --fleet"),
        ("--open", "omit --open"),
        command="experiment add room_temp.signed.json",
    )
    def test_rejects_other_and_open_fleets(self, refusal: Refusal, signed, tmp_path):
        refusal.check(tmp_path)

    def test_unsigned_experiment_needs_signing_key(self, run, signed):
        text = run("experiment", "add", "room_temp.toml", "--fleet", "home", "--keys")
        assert "`serve` publishes it if it has the signing key" in " ".join(text.split())


class TestStatus:
    def test_lists_unsigned_experiments(self, run, folder):
        run("experiment", "sign", "room_temp.toml", "--folder", "fl")
        run("experiment", "add", "room_temp.signed.json", "--keys")
        assert "not signed" not in run("status")
        other = Path("other.toml")
        other.write_text(ROOM_TEMP.read_text().replace('"room_temp"', '"other"'))
        run("experiment", "add", "other.toml")
        text = " ".join(run("status").split())
        assert text.count("It is not signed, so only an aggregator with the signing key publishes it") == 1
