"""Runs a fleet: keys and certificates, boards, the HTTP door, published results, compliance documents."""
