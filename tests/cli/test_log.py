"""`hushmote log`: a log's key, entries, files and proofs, and what an auditor sees."""

import json
import resource
import shutil
import stat
import time
from xml.etree import ElementTree

import pytest
from boards import SIGNING, experiment, payload_of
from command_line import hushmote
from log_witness import LOG, TestWitness

from hushmote.server.log.entry import Entry, experiment_entry
from hushmote.server.log.note import COSIGNATURE, ECDSA, ED25519
from hushmote.server.store import Store
from hushmote.server.store.log import StoredLog
from hushmote.server.wire import keys, topics

KEY = str(LOG.public(ED25519))
POLICY = """POLICY = {
    "sum": 8_000_000, "squares": 0, "epsilon": 4_000_000, "rules": ("sum",), "experiments": ("%s",)
}
"""
TOPIC = topics.experiment_topic("home", "temp")
NOW = int(time.time())


def announced(number, serial=NOW):
    """Return an entry with another version of temp for each number."""
    payload = payload_of(experiment(epsilon=100_000 * (number + 1)))
    return experiment_entry("home", "temp", keys.sign_experiment(SIGNING, TOPIC, payload, serial))


class Site:
    """A store with a log, and the files that its commands use."""

    def __init__(self, folder):
        self.folder, self.url = folder, f"sqlite:///{folder}/store.sqlite"
        self.store = Store(self.url)
        self.store.add_fleet("home", keyed=True)
        self.log = StoredLog(self.store)
        self.key, self.export = folder / "log.key", folder / "export"
        self.key.write_text(str(LOG))
        self.key.chmod(0o600)

    def add(self, *entries):
        self.log.append(LOG, lambda _: entries, NOW)

    def run(self, *arguments, code=0):
        """Run a command that has the store as an option, and return what it says."""
        return says(self.folder, *arguments, "--store", self.url, code=code)

    def write(self):
        return self.run("export", self.export)

    def watch(self, *more, code=0):
        return says(self.folder, "watch", self.export, "--state", self.folder / "seen.json", *more, code=code)

    def check(self, *more, code=0):
        return says(self.folder, "check", self.export, "--key", KEY, *more, code=code)


def says(folder, *arguments, code=0, writes=False):
    """Return what `hushmote log` says, or with code=1 its error."""
    return hushmote("log", *map(str, arguments), cwd=folder, expect=code, writes=writes)


@pytest.fixture
def site(tmp_path):
    site = Site(tmp_path)
    yield site
    site.store.close()


class TestKey:
    def test_is_private_and_never_replaced(self, tmp_path):
        file = tmp_path / "log.key"
        text = says(tmp_path, "key", file, "--origin", "example.org/questions")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert "example.org/questions+" in text
        before = file.read_bytes()
        refusal = says(tmp_path, "key", file, "--origin", "other", code=1)
        assert "already exists: others know its key" in refusal
        assert file.read_bytes() == before

    def test_prints_the_keys_of_a_file_again(self, tmp_path):
        file = tmp_path / "log.key"
        assert "create it with --origin NAME" in says(tmp_path, "key", file, code=1)
        text = says(tmp_path, "key", file, "--origin", "example.org/questions")
        assert says(tmp_path, "key", file) == text

    def test_refuses_a_name_with_spaces(self, tmp_path):
        text = says(tmp_path, "key", tmp_path / "k", "--origin", "my log", code=1)
        assert "name is printable ASCII without spaces and +" in text
        assert not (tmp_path / "k").exists()

    def test_refuses_a_file_that_others_read(self, site):
        site.add(announced(0))
        site.key.chmod(0o644)
        text = site.run("restore", site.folder, "--log-key", site.key, code=1)
        assert "can be read by other users" in text

    def test_policy_lists_keys_in_the_order_of_witnesses(self, site):
        with TestWitness("w1.example", 10) as first, TestWitness("w2.example", 20) as second:
            file = site.folder / "witnesses.txt"
            file.write_text(f"# ours\n{first.line}\n{second.line}")
            text = says(site.folder, "policy", "--log-key", site.key, "--witnesses", file)
            as_json = says(site.folder, "policy", "--log-key", site.key, "--witnesses", file, "--json")
        (log,) = eval(f"{{{text}}}").values()
        assert json.loads(as_json) == log | {"keys": list(log["keys"])}
        assert (log["origin"], log["need"], len(log["keys"])) == (LOG.name, 2, 3)

    @pytest.mark.parametrize(
        ("count", "need", "numbers"), [(2, 1, "2"), (3, 1, "2 to 3"), (4, 2, "3 to 4"), (4, 5, "3 to 4")]
    )
    def test_policy_needs_more_than_half(self, site, count, need, numbers):
        file = site.folder / "witnesses.txt"
        secrets = [TestWitness(f"w{number}.example", 10 * number).secret for number in range(1, 1 + count)]
        file.write_text("".join(f"http://w.example {secret.public(ECDSA)}\n" for secret in secrets))
        options = "--log-key", site.key, "--witnesses", file, "--need"
        assert f"--need must be {numbers}, more than half" in says(
            site.folder, "policy", *options, need, code=1
        )
        assert '"need": ' in says(site.folder, "policy", *options, count // 2 + 1)

    def test_policy_refuses_a_key_that_is_there_twice(self, site):
        file = site.folder / "witnesses.txt"
        options = "policy", "--log-key", site.key, "--witnesses", file
        secret = TestWitness().secret
        file.write_text(2 * f"- {secret.public(COSIGNATURE)} {secret.public(ECDSA)}\n")
        assert "a witness's key appears twice: list each" in says(site.folder, *options, code=1)
        file.write_text(f"- {LOG.public(ECDSA)}\n")
        assert "a witness's key is the log's own: list each" in says(site.folder, *options, code=1)

    def test_policy_leaves_out_a_witness_that_is_gone(self, site):
        file = site.folder / "witnesses.txt"
        options = "policy", "--log-key", site.key, "--witnesses", file
        gone, present = (TestWitness(f"w{n}.example", 10 * n).secret for n in (1, 2))
        file.write_text(f"- {gone.public(ECDSA)}\nhttp://w2.example {present.public(ECDSA)}\n")
        log = json.loads(says(site.folder, *options, "--json"))
        assert (log["keys"], log["need"]) == (
            [LOG.public(ECDSA).value.hex(), present.public(ECDSA).value.hex()],
            1,
        )
        file.write_text(f"- {gone.public(ECDSA)}\n")
        assert "has no witness with a URL and with a key for boards" in says(site.folder, *options, code=1)

    def test_policy_refuses_more_witnesses_than_boards_know(self, site):
        file = site.folder / "witnesses.txt"
        options = "policy", "--log-key", site.key, "--witnesses", file
        secrets = [TestWitness(f"w{n}.example", 10 * n).secret for n in range(1, 14)]
        lines = [f"http://w.example {secret.public(ECDSA)}\n" for secret in secrets]
        for count, words in (
            (8, "boards support up to 7 witnesses"),
            (12, "boards support"),
            (13, "room for 12 witnesses"),
        ):
            file.write_text("".join(lines[:count]))
            assert words in says(site.folder, *options, code=1)

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            (
                "w1.example+00",
                "must be the witness's URL, or - if it is gone, and its one or two public keys",
            ),
            ("http://w1.example x", "has the form NAME\\+ID\\+BASE64"),
            (f"http://w1.example {KEY} {KEY}", "of different types"),
        ],
    )
    def test_refuses_a_wrong_line_of_a_witness(self, site, line, words):
        file = site.folder / "witnesses.txt"
        file.write_text(f"\n{line}\n")
        text = says(site.folder, "policy", "--log-key", site.key, "--witnesses", file, code=1)
        assert "line 2" in text
        assert words.replace("\\", "") in text


class TestExport:
    def test_adds_what_is_new(self, site):
        site.add(*(announced(number) for number in range(3)))
        assert site.write() == f"{site.export} has 3 entries, 3 of them new\n"
        assert stat.S_IMODE((site.export / "checkpoint").stat().st_mode) & 0o444 == 0o444
        site.add(announced(3))
        assert site.write() == f"{site.export} has 4 entries, 1 of them new\n"
        assert site.write() == f"{site.export} is up to date: 4 entries\n"

    def test_refuses_another_logs_folder(self, site):
        site.add(announced(0))
        site.write()
        site.add(announced(1))
        site.write()
        other = Site(site.folder / "other") if (site.folder / "other").mkdir() is None else None
        assert other is not None
        with other.store:
            other.add(announced(7))
            text = says(site.folder, "export", site.export, "--store", other.url, code=1)
            assert "run `hushmote log restore" in text
            other.add(announced(8))
            text = says(site.folder, "export", site.export, "--store", other.url, code=1)
            assert "has other entries of example.org/questions: choose another folder" in text

    def test_full_disk_leaves_the_log_as_it_was(self, site):
        site.add(announced(0))
        site.write()
        before = (site.export / "checkpoint").read_bytes()
        site.add(*(announced(number, NOW + number) for number in range(1, 9)))
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            text = says(site.folder, "export", site.export, "--store", site.url, code=1, writes=True)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert f"cannot write {site.export}: File too large" in text
        assert (site.export / "checkpoint").read_bytes() == before
        assert not list(site.export.rglob("*.new"))
        site.check()
        site.write()
        assert "had 9 versions" in site.check(code=1)

    def test_needs_a_log(self, site):
        text = site.run("export", site.export, code=1)
        assert "the store has no log: run `hushmote serve --log-key FILE` first" in text


class TestCheck:
    def test_lists_what_a_log_has(self, site):
        manifest, policy = site.folder / "SHA256SUMS", site.folder / "main.json"
        manifest.write_text(f"{'0' * 64}  main.py\n")
        fields = {"sum": 8_000_000, "squares": 0, "epsilon": 4_000_000, "rules": ["sum"]}
        policy.write_text(json.dumps(fields | {"experiments": ["temp"]}))
        site.add(announced(0))
        site.add(experiment_entry("home", "temp", b"\0" + bytes(68)))
        text = site.run("add", "release", manifest, "--version", "1.2.0", "--log-key", site.key)
        assert text == "release 1.2.0 is entry 2 of example.org/questions\n"
        site.run("add", "policy", policy, "--log-key", site.key)
        again = site.run("add", "policy", policy, "--log-key", site.key)
        assert again == "policy of fleet home is already entry 3 of example.org/questions\n"
        site.write()
        text = site.check()
        assert "example.org/questions has 4 entries, as signed in its checkpoint." in text
        assert "1 fleet: home" in text
        assert ["home", "temp", "1", "withdrawn"] in [line.split() for line in text.splitlines()]
        assert "policies of fleet home: 1" in text
        assert "releases: 1.2.0" in text
        values = json.loads(site.check("--json"))
        assert (values["size"], values["policies"], values["problems"]) == (4, {"home": 1}, [])
        listed = json.loads(site.run("list", "--newest", 2, "--json"))
        assert [row["what"] for row in listed["entries"]] == ["release 1.2.0", "policy of fleet home"]

    def test_signer_cannot_control_the_terminal(self, site):
        site.add(announced(0))
        site.write()
        with (site.export / "checkpoint").open("a") as file:
            file.write("\u2014 \x1b[2J\u202e QUJDREVGRw==\n")
        text = site.check()
        assert "were not verified" in text
        assert not {"\x1b", "\u202e"} & set(text)

    def test_compares_a_policy(self, site):
        policy = site.folder / "main.py"
        policy.write_text(POLICY % "temp")
        site.run("add", "policy", policy, "--log-key", site.key)
        site.write()
        assert f"{policy} has the policy of fleet home in entry 0." in site.check("--policy", policy)
        assert json.loads(site.check("--policy", policy, "--json"))["policy_entries"] == {"0": "home"}
        policy.write_text(POLICY % "other")
        assert f"the log does not have the policy in {policy}" in site.check("--policy", policy, code=1)
        assert "cannot read" in site.check("--policy", site.folder / "none.py", code=1)

    def test_release_has_no_fleet(self, site):
        manifest = site.folder / "SHA256SUMS"
        manifest.write_text(f"{'0' * 64}  main.py\n")
        options = "--version", "1.2.0", "--log-key", site.key, "--fleet", "home"
        assert "--fleet goes with a policy" in site.run("add", "release", manifest, *options, code=1)

    def test_takes_a_public_key_or_its_file(self, site):
        site.add(announced(0))
        site.write()
        public = site.folder / "log.pub"
        public.write_text(KEY + "\n")
        assert "has 1 entry" in says(site.folder, "check", site.export, "--key", public)
        witness = site.folder / "witness.pub"
        witness.write_text(str(TestWitness().secret.public(COSIGNATURE)))
        assert "has not signed" in site.check("--witness", witness, code=1)
        seen = "watch", site.export, "--state", site.folder / "seen.json"
        assert "temp of fleet home" in says(site.folder, *seen, "--key", public)
        assert "no new entries" in says(site.folder, *seen, "--key", KEY)

    @pytest.mark.parametrize("option", ["--key", "--witness"])
    def test_refuses_a_secret_key_as_public(self, site, option):
        text = site.check(option, site.key, code=1)
        assert f"{option}: {site.key} is a secret key: keep it where it is" in text
        assert "must be a public key of the form NAME+ID+BASE64" in site.check(option, "none", code=1)

    def test_refuses_a_public_key_to_sign_with(self, site):
        text = site.run("restore", site.export, "--log-key", KEY, code=1)
        assert "a public key cannot sign: give the key file" in text
        public = site.folder / "log.pub"
        public.write_text(KEY)
        assert site.run("restore", site.export, "--log-key", public, code=1) == text

    def test_a_witness_must_have_signed(self, site):
        witness = TestWitness().secret
        site.add(announced(0))
        site.write()
        public = str(witness.public(COSIGNATURE))
        assert "w1.example has not signed it" in site.check("--witness", public, code=1)
        site.log.add_signatures(1, witness.cosign(site.log.checkpoints[1].text, 1_800_000_000), NOW)
        site.write()
        assert "w1.example has signed it at 2027-01-15T08:00:00+00:00." in site.check("--witness", public)
        assert "Signatures of w1.example were not verified" in site.check()
        assert json.loads(site.check("--json"))["not_verified"] == ["w1.example"]

    def test_tells_what_changed_too_often(self, site):
        site.add(*(announced(number, NOW - 86_400 + number) for number in range(5)))
        site.write()
        assert "temp of fleet home had 5 versions within 1.0 days" in site.check(code=1)

    @pytest.mark.parametrize(
        ("question", "serial", "words"),
        [
            (payload_of(experiment(epsilon=200_000)), 5, "changes with serial 5, but serial 5 came before"),
            (payload_of(experiment(group="fw", groups=["1"], every=[1, 90])), 6, "make it one number"),
            (payload_of(experiment()).replace(b"{", b'{"v":1,', 1), 6, "a field twice"),
        ],
    )
    def test_tells_what_witnesses_refuse(self, site, question, serial, words):
        site.add(
            announced(0, 5), experiment_entry("home", "temp", b"%b\0\0\0\0%c%64b" % (question, serial, b""))
        )
        site.write()
        text = site.check(code=1)
        assert "entry 1, temp of fleet home, " in text
        assert words in text

    def test_counts_no_breach_for_a_change_a_day(self, site):
        site.add(*(announced(number, NOW - 86_400 * (5 - number)) for number in range(5)))
        site.write()
        site.check()

    @pytest.mark.parametrize("file", ["checkpoint", "tile/0/000.p/3", "tile/entries/000.p/3"])
    def test_refuses_an_altered_file(self, site, file):
        site.add(*(announced(number, NOW - 86_400 * (5 - number)) for number in range(3)))
        site.write()
        good = (site.export / file).read_bytes()
        for at in range(0, len(good), 7):
            (site.export / file).write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
            if file != "checkpoint" or at < len(good.partition(b"\n\n")[0]):
                site.check(code=1)
        (site.export / file).unlink()
        assert "cannot be read: No such file" in site.check(code=1)

    def test_refuses_another_key(self, site):
        site.add(announced(0))
        site.write()
        other = str(TestWitness("example.org/questions").secret.public(ED25519))
        text = says(site.folder, "check", site.export, "--key", other, code=1)
        assert "its checkpoint has no signature of the key" in text
        board_hex = LOG.public(ECDSA).value.hex()
        text = says(site.folder, "check", site.export, "--key", board_hex, code=1)
        assert "--key must be a public key of the form NAME+ID+BASE64" in text

    def test_hints_at_a_missing_scheme(self, site):
        text = says(site.folder, "check", "example.org/log", "--key", KEY, code=1)
        assert "give the folder of an export, or an address with https://" in text

    def test_lists_an_empty_log_in_a_line(self, site):
        site.log.begin(LOG, NOW)
        assert site.run("list") == f"{LOG.name}: 0 entries\nsigned by {LOG.name}\n"


class TestProof:
    def test_states_who_signed(self, site):
        with TestWitness() as witness:
            file = site.folder / "witnesses.txt"
            file.write_text(witness.line)
            options = ("--log-key", site.key, "--witnesses", file)
            assert "is not in the log" in site.run("proof", "temp", *options, code=1)
            site.add(announced(0))
            assert "no witness has signed a checkpoint with" in site.run("proof", "temp", *options, code=1)
            site.log.add_signatures(1, witness.secret.cosign(site.log.checkpoints[1].text, NOW), NOW)
            text = site.run("proof", "temp", *options)
            start = "entry 0 in a log of size 1, 141 bytes, signed by example.org/questions, w1.example\n"
            assert text.startswith(start)


class TestWatch:
    def test_shows_what_is_new(self, site):
        site.add(announced(0))
        site.write()
        assert "give the log's public key with --key" in site.watch(code=1)
        text = site.watch("--key", KEY)
        assert "0: temp of fleet home\n`temp` is new." in text
        assert '    {"v": 1, "name": "temp"' in text
        assert all(len(line) <= 80 for line in text.splitlines())
        assert site.watch() == "example.org/questions has no new entries: 1 in all\n"
        site.add(announced(1), experiment_entry("home", "temp", b"\0" + bytes(68)))
        site.write()
        feed = site.folder / "log.xml"
        text = site.watch("--feed", feed)
        assert "1: temp of fleet home\n`temp` gets a new version." in text
        assert "epsilon" in text
        assert "2: temp of fleet home, withdrawn\n    It is withdrawn." in text
        entries = ElementTree.parse(feed).getroot().findall("{http://www.w3.org/2005/Atom}entry")
        titles = [entry.findtext("{http://www.w3.org/2005/Atom}title") for entry in entries]
        assert titles == ["temp of fleet home, withdrawn", "temp of fleet home", "temp of fleet home"]
        assert '"epsilon": 200000' in (entries[1].findtext("{http://www.w3.org/2005/Atom}content") or "")

    def test_unreadable_version_does_not_hide_the_next(self, site):
        site.add(experiment_entry("home", "temp", b"{"), announced(0), announced(1))
        site.write()
        text = site.watch("--key", KEY)
        assert "0: temp of fleet home\n    This version of Hushmote cannot read it: {\n" in text
        assert "1: temp of fleet home\n`temp` is new." in text
        assert "2: temp of fleet home\n`temp` gets a new version." in text

    def test_entry_cannot_print_lines_of_its_own(self, site):
        content = "\n".join(["0" * 64 + "  main.py", "1: heat of fleet home", "", "ALARM \x1b[2J\rx"])
        site.add(Entry("hushmote/release/1.0", content.encode()))
        site.write()
        first, *lines = site.watch("--key", KEY).splitlines()
        assert first == "0: release 1.0"
        assert [line[:5] for line in lines] == ["    0", "    1", "    ", "    A"]
        assert lines[3] == "    ALARM \\x1b[2J\\rx"

    def test_alarms_if_the_log_became_shorter(self, site):
        site.add(announced(0))
        site.write()
        shutil.copytree(site.export, site.folder / "old")
        site.add(announced(1))
        site.write()
        site.watch("--key", KEY)
        shutil.rmtree(site.export)
        (site.folder / "old").rename(site.export)
        for _ in range(2):
            assert "ALARM" in (text := site.watch(code=1))
            assert "had 2 entries at the last run and has 1 now" in text

    def test_alarms_if_the_log_has_another_history(self, site):
        site.add(announced(0))
        site.write()
        site.watch("--key", KEY)
        (site.folder / "b").mkdir()
        other = Site(site.folder / "b")
        with other.store:
            other.add(announced(5))
            other.add(announced(6))
            shutil.rmtree(site.export)
            says(site.folder, "export", site.export, "--store", other.url)
        text = site.watch(code=1)
        assert "ALARM: entries that " in text
        assert "had at the last run have changed" in text


class TestServe:
    def test_a_store_with_a_log_needs_its_key(self, site):
        site.add(announced(0))
        text = hushmote("serve", "--store", site.url, cwd=site.folder, expect=1)
        assert (
            "has a log, and boards that require it take only what is in it: give its key with --log-key"
            in text
        )


class TestRestore:
    def test_brings_back_what_a_backup_lacks(self, site):
        site.add(announced(0))
        hushmote("store", "backup", site.url, "backup.sqlite", cwd=site.folder)
        site.add(announced(1))
        site.write()
        old = f"sqlite:///{site.folder}/backup.sqlite"
        text = says(site.folder, "restore", site.export, "--log-key", site.key, "--store", old)
        assert text == "1 entry added; the store's log has 2 now\n"
        with Store(old) as store:
            log = StoredLog(store)
            log.refresh()
            assert log.checkpoint == site.log.checkpoint

    def test_refuses_what_the_log_has_not_signed(self, site):
        site.add(announced(0))
        site.write()
        other = site.folder / "other.key"
        other.write_text(str(TestWitness("example.org/questions").secret))
        other.chmod(0o600)
        text = site.run("restore", site.export, "--log-key", other, code=1)
        assert "its checkpoint has no signature" in text
