"""Experiments and simulated histograms that several tests of estimates use."""

import numpy as np
from experiments import experiment_json, number_json

from hushmote.device.ldp_client import ONE, Experiment, Level
from hushmote.server.estimate import Estimate, estimate
from hushmote.server.mechanisms import choose as oracle
from hushmote.server.mechanisms.workload import ALL_RANGES
from hushmote.simulator import vectorised


def number(domain: int, epsilon: float, low: int = 0, high: int = 64_000, name: str = "x") -> Experiment:
    """Return a number experiment with `domain` bins; see number_payload()."""
    return Experiment.parse(number_payload(domain, epsilon, low, high, name))


def number_payload(domain: int, epsilon: float, low: int, high: int, name: str) -> bytes:
    """Return a number experiment's payload for ranges; low and high in thousandths, epsilon in nats."""
    choice = oracle.choose(domain, round(epsilon * 1e6), ALL_RANGES)
    fields = {"name": name, "low": low, "high": high, "epsilon": round(epsilon * 1e6)}
    if choice.mechanism == "hh":
        fields |= dict(choice.parameters)
    return number_json(domain, mechanism=choice.mechanism, **fields)


def number_with_mechanism(mechanism: str, domain: int, epsilon: float, **fields) -> Experiment:
    """Return a number experiment with `domain` bins, a mechanism and its fields; epsilon in nats."""
    payload = number_json(domain, mechanism=mechanism, epsilon=round(epsilon * 1e6), **fields)
    return Experiment.parse(payload)


def choice(labels: list[str], epsilon: float) -> Experiment:
    """Return a choice experiment; see choice_payload()."""
    return Experiment.parse(choice_payload(labels, epsilon))


def choice_payload(labels: list[str], epsilon: float) -> bytes:
    """Return the payload of a choice among labels and "other", answered directly; epsilon in nats."""
    fields = {"name": "mode", "type": "choice", "labels": labels, "mechanism": "grr"}
    return experiment_json(**fields, epsilon=round(epsilon * 1e6), budget={"rule": "unlimited"})


def bell(domain: int, centre: float, width: float) -> np.ndarray:
    """Return the shares of a bell curve; centre and width in bins."""
    shares = np.exp(-0.5 * ((np.arange(domain) + 0.5 - centre) / width) ** 2)
    return shares / shares.sum()


def drawn_counts(
    experiment: Experiment, shares: np.ndarray, reports: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the histogram of codes for a fleet drawn from a population."""
    return vectorised.histogram(experiment, rng.multinomial(reports, shares), rng)


def draw(experiment: Experiment, shares: np.ndarray, reports: int, rng: np.random.Generator) -> Estimate:
    """Return the estimate for a fleet drawn from a population."""
    return estimate(experiment, drawn_counts(experiment, shares, reports, rng))


def support_matrix(level: Level) -> np.ndarray:
    """Return which codes support which nodes of a level, by the hash's definition: (code_count, nodes)."""
    if not level.t:
        return np.eye(level.domain)
    digits = level.g ** np.arange(level.t)
    seeds = np.arange(1, level.seeds + 1)[:, None] // digits % level.g
    cells = seeds @ (np.arange(level.domain)[:, None] // digits % level.g).T % level.g
    return (cells[:, None, :] == np.arange(level.g)[:, None]).reshape(-1, level.domain).astype(float)


def level_channel(level: Level, domain: int) -> np.ndarray:
    """Return the probability of each code of a level for each value, by definition: (code_count, domain)."""
    p = level.threshold / ONE
    lie = (1 - p) / (level.g - 1)
    return (lie + (p - lie) * support_matrix(level)[:, np.arange(domain) // level.width]) / level.seeds
