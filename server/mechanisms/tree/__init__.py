"""Trees of histograms: each report answers for one level, and least squares combines the levels."""
