"""Experiments and simulated histograms that several tests of estimates use."""

import json

import numpy as np

from hushmote.device.ldp_client import Experiment
from hushmote.server.estimate import Estimate, estimate
from hushmote.server.mechanisms import choose as oracle
from hushmote.server.mechanisms.workload import ALL_RANGES
from hushmote.simulator import vectorised


def number(domain: int, epsilon: float, low: int = 0, high: int = 64_000, name: str = "x") -> Experiment:
    """A number over domain bins; see number_payload."""
    return Experiment.parse(number_payload(domain, epsilon, low, high, name))


def number_payload(domain: int, epsilon: float, low: int, high: int, name: str) -> bytes:
    """A number over domain bins for ranges, low and high in thousandths; epsilon in nats."""
    choice = oracle.choose(domain, round(epsilon * 1e6), ALL_RANGES)
    fields = {"v": 1, "name": name, "type": "number", "low": low, "high": high, "bins": domain}
    fields |= {"mechanism": choice.mechanism, "epsilon": round(epsilon * 1e6)}
    if choice.mechanism == "hh":
        fields |= {"fanout": choice.fanout, "cells": list(choice.cells)}
        fields |= {"weights": list(choice.weights)} if choice.weights else {}
    fields |= {"budget": {"rule": "unlimited"}, "window": "day"}
    return json.dumps(fields).encode()


def designed(mechanism: str, domain: int, epsilon: float, **fields) -> Experiment:
    """A number over domain bins by a mechanism and its fields; epsilon in nats."""
    base = {"v": 1, "name": "x", "type": "number", "low": 0, "high": 1000, "bins": domain}
    base |= {"mechanism": mechanism, "epsilon": round(epsilon * 1e6)}
    base |= {"budget": {"rule": "unlimited"}, "window": "day"}
    return Experiment.parse(json.dumps(base | fields).encode())


def choice(labels: list[str], epsilon: float) -> Experiment:
    """A choice; see choice_payload."""
    return Experiment.parse(choice_payload(labels, epsilon))


def choice_payload(labels: list[str], epsilon: float) -> bytes:
    """A choice of labels and "other", answered directly; epsilon in nats."""
    fields = {"v": 1, "name": "mode", "type": "choice", "labels": labels, "mechanism": "grr"}
    fields |= {"epsilon": round(epsilon * 1e6), "budget": {"rule": "unlimited"}, "window": "day"}
    return json.dumps(fields).encode()


def bell(domain: int, centre: float, width: float) -> np.ndarray:
    """Shares of a bell curve; centre and width in bins."""
    shares = np.exp(-0.5 * ((np.arange(domain) + 0.5 - centre) / width) ** 2)
    return shares / shares.sum()


def draw(experiment: Experiment, shares: np.ndarray, reports: int, rng: np.random.Generator) -> Estimate:
    """The estimate of a fleet drawn from a population."""
    return estimate(experiment, vectorised.histogram(experiment, rng.multinomial(reports, shares), rng))
