"""Receivers of alerts are read from private files and never shown with their passwords."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import hushmote
from receivers import Webhook, mail_server, notify_file
from refusals import fails

from hushmote.fleet.alerts.receivers import load_receivers, parse_receivers, send
from hushmote.server.errors import UsageError

SECRET = "s3cretpassword"


class TestFile:
    @pytest.mark.parametrize(
        "line",
        ["nosuch://s3cretpassword@host", "s3cretpassword", "include https://s3cretpassword", "slack://s"],
    )
    def test_refuses_a_line_without_quoting_it(self, line: str):
        with pytest.raises(UsageError, match="line 3 of there is not an address") as caught:
            parse_receivers(f"# receivers\njson://host\n{line}\n", "there")
        assert SECRET not in str(caught.value)

    def test_must_be_private(self, tmp_path: Path):
        file = notify_file(tmp_path, "json://host")
        file.chmod(0o644)
        with fails("can be read by others; run `chmod 600`", UsageError):
            load_receivers(file)

    def test_must_have_an_address(self, tmp_path: Path):
        with fails("has no addresses", UsageError):
            load_receivers(notify_file(tmp_path, "# nobody"))
        with fails("cannot read the receivers", UsageError):
            load_receivers(tmp_path / "absent")

    def test_environment_has_addresses(self):
        receivers = load_receivers(None, {"HUSHMOTE_NOTIFY": "json://one\nops=json://two json://three"})
        assert [(each.line, each.service) for each in receivers] == [(1, "JSON"), (2, "JSON"), (3, "JSON")]
        assert load_receivers(None, {}) == ()

    def test_ids_differ_and_stay_the_same(self):
        text = "json://u:one@host/\njson://u:two@host/\njson://other/"
        ids = [receiver.id for receiver in parse_receivers(text, "x")]
        assert len(set(ids)) == 3
        assert ids == [receiver.id for receiver in parse_receivers(text, "x")]

    def test_repr_has_no_password(self):
        assert SECRET not in repr(parse_receivers(f"json://u:{SECRET}@host", "x"))


class TestSend:
    def test_arrives_as_mail_and_at_a_webhook(self):
        with Webhook() as hook, mail_server() as (mail, mails):
            for receiver in parse_receivers(f"{hook.url}\n{mail}", "x"):
                assert send(receiver, "Title", "1 < 2 & *so on*") == ""
            assert [(m["title"], m["message"]) for m in hook.messages] == [("Title", "1 < 2 & *so on*")]
            (received,) = mails
            assert received["Subject"] == "Title"
            assert "1 < 2 & *so on*" in received.get_body(("plain", "html")).get_content().replace(
                "&lt;", "<"
            ).replace("&amp;", "&")

    def test_tells_why_it_did_not_arrive(self, caplog: pytest.LogCaptureFixture):
        caplog.set_level(logging.DEBUG)
        with Webhook() as hook:
            (receiver,) = parse_receivers(hook.url, "x")
            hook.status = 403
            assert send(receiver, "Title", "text") == "the server answered 403"
        assert "cannot be reached" in send(receiver, "Title", "text")
        assert SECRET not in caplog.text


class TestNotifyCommand:
    def test_says_per_line_what_arrived(self, tmp_path: Path):
        with Webhook() as hook:
            file = notify_file(tmp_path, hook.url, "# gone", f"json://u:{SECRET}@127.0.0.1:1/")
            command = [sys.executable, "-m", "hushmote", "notify", "--test", str(file)]
            result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
            assert result.returncode == 1
            assert result.stderr == "hushmote: 1 of 2 messages did not arrive: correct these lines\n"
            assert result.stdout.splitlines() == [
                "line 1: JSON: sent",
                "line 3: JSON: did not arrive: the server cannot be reached, or refused the connection",
            ]
            assert hook.titles == ["Test"]

    def test_only_checks_without_test(self, tmp_path: Path):
        file = notify_file(tmp_path, "json://127.0.0.1:1/")
        assert hushmote("notify", str(file), cwd=tmp_path) == "line 1: JSON\n"
