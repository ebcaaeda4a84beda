"""The use cases, without SQL and without formulas: what the adapters, the command line and the reports call."""
