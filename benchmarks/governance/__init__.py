"""Which rule decides best about memories: worlds with a known truth, a real log, and the rules of others beside ours."""
