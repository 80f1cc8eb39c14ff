"""Versions of a question: every byte is a change, except values appended to its groups."""

import json

import pytest

from hushmote.server.log.change import Change, compare, fault
from hushmote.server.log.entry import experiment_entry

OLD = b'{"v":1,"name":"t","group":"fw","groups":["1.0","1.1"],"every":3,"labels":["a","b"]}'


def changed(**fields):
    return json.dumps(json.loads(OLD) | fields, separators=(",", ":")).encode()


class TestCompare:
    def test_same_bytes_are_no_change(self):
        assert compare(OLD, OLD) is Change.NONE

    def test_first_version_is_a_change(self):
        assert compare(None, OLD) is Change.QUESTION

    @pytest.mark.parametrize("values", [["1.2"], ["1.2", "2.0"], ["größer"]])
    def test_appended_group_values(self, values):
        longer = json.loads(OLD)["groups"] + values
        new = OLD.replace(b'"1.1"]', b'"1.1",' + json.dumps(values, ensure_ascii=False).encode()[1:])
        assert json.loads(new)["groups"] == longer
        assert compare(OLD, new) is Change.GROUPS

    @pytest.mark.parametrize(
        "new",
        [
            OLD + b" ",
            OLD.replace(b":1", b": 1"),
            OLD.replace(b'"v":1,"name":"t"', b'"name":"t","v":1'),
            changed(groups=["1.1", "1.0"]),
            changed(groups=["1.0"]),
            changed(groups=["1.2", "1.0", "1.1"]),
            changed(groups=["1.0", "1.1", "1.2"], every=4),
            changed(groups=["1.0", "1.1", "1.2"]) + b"\n",
            changed(groups=["1.0", "1.1", "1.2"]).replace(b'"v":1', b'"v": 1'),
            changed(groups=["1.0", "1.1", 2]),
            changed(labels=["a", "b", "c"]),
            changed(group="hw"),
            b"[]",
            b"\xff",
            b"",
        ],
    )
    def test_anything_else_is_a_change(self, new):
        assert compare(OLD, new) is Change.QUESTION

    def test_first_groups_are_a_change(self):
        assert compare(b'{"groups":[]}', b'{"groups":["a"]}') is Change.QUESTION
        assert compare(b"{}", b'{"groups":["a"]}') is Change.QUESTION


def fault_of(question, *, name="t", serial=None, highest=-1, change=Change.QUESTION):
    signature = b"" if serial is None else b"\0" + serial.to_bytes(4, "big") + bytes(64)
    return fault(experiment_entry("home", name, question + signature), change, highest)


class TestFault:
    @pytest.mark.parametrize(
        "question", [b"[]", b"{", b'{"name":"t","name":"t"}', b"[" * 1000, b'{"name":"t","a":{"b":1,"b":2}}']
    )
    def test_refuses_what_clients_could_read_differently(self, question):
        assert "some boards may read otherwise" in fault_of(question)

    def test_refuses_another_name(self):
        assert "has another name" in fault_of(OLD, name="other")
        assert fault_of(OLD) == ""

    @pytest.mark.parametrize("question", [b"\xff", OLD.replace(b"{", b"{" + b" " * 1024)])
    def test_refuses_what_boards_cannot_read(self, question):
        assert "boards cannot read it" in fault_of(question)

    def test_refuses_an_every_for_each_group(self):
        assert "make it one number" in fault_of(changed(every=[3, 1, 1]))

    def test_change_needs_a_higher_serial(self):
        assert "changes with serial 5, but serial 5 came before" in fault_of(OLD, serial=5, highest=5)
        assert fault_of(OLD, serial=5, highest=5, change=Change.NONE) == ""
        assert fault_of(OLD, serial=6, highest=5) == ""
        assert fault_of(OLD, serial=0) == ""
