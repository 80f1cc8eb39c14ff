"""A limit per device and hour that cannot be exceeded, in fixed memory."""

import sys

import pytest

from hushmote.server.ingest.rate_limit import HOUR_S, RateLimit


class TestRateLimit:
    def test_allows_reports_up_to_the_limit_each_hour(self):
        limit = RateLimit(5)
        limit.start(100.0)
        limit.add({("home", "a"): 4})
        assert (
            limit.remaining(("home", "a")),
            limit.remaining(("home", "b")),
            limit.remaining(("away", "a")),
        ) == (1, 5, 5)
        limit.add({("home", "a"): 1})
        limit.start(100.0 + HOUR_S - 1)
        assert limit.remaining(("home", "a")) == 0
        limit.start(100.0 + HOUR_S)
        assert limit.remaining(("home", "a")) == 5
        limit.add({("home", "a"): 2})
        limit.start(100.0 + HOUR_S + 1)  # the second hour goes on
        assert limit.remaining(("home", "a")) == 3

    def test_crowds_never_raise_a_limit_and_rarely_lower_it(self):
        # A device gets less if each of its two cells, of 1,048,576, contains another of the 20,000: with
        # chance 0.00036. 1,000 of them: more than 15 by chance below 1e-20 (Poisson, mean 0.36).
        limit = RateLimit(10)
        limit.start(0.0)
        limit.add({("home", f"d{i}"): 3 for i in range(20_000)})
        quotas = [limit.remaining(("home", f"d{i}")) for i in range(1000)]
        assert max(quotas) == 7
        assert sum(r < 7 for r in quotas) <= 15

    def test_memory_is_fixed_and_cells_saturate(self):
        limit = RateLimit(65_535)
        size = sum(map(sys.getsizeof, limit._cells))
        limit.add({("home", "a"): 65_000})
        limit.add({("home", "a"): 65_000})
        assert limit.remaining(("home", "a")) == 0
        assert sum(map(sys.getsizeof, limit._cells)) == size < 5 << 20

    @pytest.mark.parametrize("reports", [0, -1, 65_536], ids=["zero", "negative", "too high"])
    def test_rejects_a_limit_out_of_range(self, reports):
        with pytest.raises(ValueError, match="1 to 65535"):
            RateLimit(reports)
