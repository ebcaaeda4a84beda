"""A demo on real input: API recipes, some broken by library upgrades, and a sandbox to run them."""
