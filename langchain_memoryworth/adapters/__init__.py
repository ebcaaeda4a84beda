"""What a user adds to a chain, an agent or a graph: store, retriever, handler, filter, middleware, nodes."""
