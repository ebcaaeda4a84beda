"""Nearest memories: FAISS or pgvector, as a cache of the ledger that follows it."""
