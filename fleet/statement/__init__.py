"""A fleet's papers: the label, tables for standards and law, a registry's entry, the signed JSON of all."""
