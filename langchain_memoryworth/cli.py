"""The command line. Filled in below."""
