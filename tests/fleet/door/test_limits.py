"""Token buckets on a simulated clock."""

import pytest

from hushmote.fleet.door.limits import Buckets, Rate, client_of


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_admits_burst_and_then_the_rate():
    clock = Clock()
    buckets = Buckets(Rate(2, 3), clock)
    assert [buckets.take("a") for _ in range(5)] == [0, 0, 0, 1, 1]
    clock.now += 0.5
    assert [buckets.take("a") for _ in range(2)] == [0, 1]
    clock.now += 1000
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 1]


def test_tells_client_when_to_retry_and_then_admits_it():
    clock = Clock()
    buckets = Buckets(Rate(0.25, 1), clock)
    assert buckets.take("a") == 0
    wait_s = buckets.take("a")
    assert wait_s == 4
    clock.now += wait_s - 1
    assert buckets.take("a") == 1
    clock.now += 1
    assert buckets.take("a") == 0


def test_each_key_has_a_bucket_up_to_a_maximum():
    buckets = Buckets(Rate(0.001, 1), Clock(), max_keys=100)
    for key in range(1000):
        assert buckets.take(key) == 0
        assert len(buckets) <= 100
    assert buckets.take(999) > 0  # the bucket is remembered
    assert buckets.take(0) == 0  # the bucket was forgotten


def test_crowd_does_not_evict_busy_client():
    buckets = Buckets(Rate(0.001, 1), Clock(), max_keys=100)
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
    ids=["IPv4", "mapped IPv4", "IPv6", "same network", "empty", "unix", "9000 characters"],
)
def test_client_key_is_ipv4_address_or_ipv6_network(address, client):
    assert client_of(address) == client
