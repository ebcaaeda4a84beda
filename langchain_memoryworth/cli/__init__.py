"""The command line `langchain-memoryworth`."""
