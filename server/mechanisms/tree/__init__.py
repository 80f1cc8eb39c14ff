"""Trees of histograms: each report answers for one level; least squares joins the levels."""
