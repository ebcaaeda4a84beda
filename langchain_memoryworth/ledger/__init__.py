"""What is durable: the tables, and everything that writes or reads them, on SQLite or Postgres."""
