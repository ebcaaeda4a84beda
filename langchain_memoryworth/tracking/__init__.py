"""Which episode a run belongs to: root runs, pauses and endings, as LangChain and LangGraph report them."""
