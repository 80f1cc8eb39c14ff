"""Token buckets, by a clock of the test's own."""

import pytest

from hushmote.fleet.door.limits import Buckets, Rate, client_of


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_a_burst_is_let_in_and_then_as_much_as_the_rate():
    clock = Clock()
    buckets = Buckets(Rate(2, 3), clock)
    assert [buckets.take("a") for _ in range(5)] == [0, 0, 0, 1, 1]
    clock.now += 0.5
    assert [buckets.take("a") for _ in range(2)] == [0, 1]
    clock.now += 1000
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 1]


def test_who_asks_too_soon_is_told_when_and_then_let_in():
    clock = Clock()
    buckets = Buckets(Rate(0.25, 1), clock)
    assert buckets.take("a") == 0
    wait_s = buckets.take("a")
    assert wait_s == 4
    clock.now += wait_s - 1
    assert buckets.take("a") == 1
    clock.now += 1
    assert buckets.take("a") == 0


def test_each_key_has_a_bucket_of_its_own_and_there_are_never_too_many():
    buckets = Buckets(Rate(0.001, 1), Clock(), most=100)
    for key in range(1000):
        assert buckets.take(key) == 0
        assert len(buckets) <= 100
    assert buckets.take(999) > 0  # it is remembered
    assert buckets.take(0) == 0  # it was forgotten


def test_who_asks_all_the_time_is_not_forgotten_for_a_crowd():
    buckets = Buckets(Rate(0.001, 1), Clock(), most=100)
    assert buckets.take("greedy") == 0
    for key in range(1000):
        buckets.take(key)
        assert buckets.take("greedy") > 0


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("", ""),
        ("unix:", ""),
        ("x" * 9000, ""),
    ],
)
def test_a_client_is_its_address_or_the_half_of_it_that_is_not_his_to_choose(address, client):
    assert client_of(address) == client
